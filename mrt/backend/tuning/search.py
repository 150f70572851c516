"""The search for the fastest tiling of a function: which of those that it offers are measured, in which order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mrt.backend.schedule.tilings import Scheduled
from mrt.backend.tuning.database import FAILED, Database

BATCH = 4
"""Tilings that are measured before the search looks at what came out."""


@dataclass(frozen=True, eq=False)
class Tunable:
    """A PrimFunc that is not scheduled, what schedules it, and the tilings that it offers, the rule's first."""

    function: Any
    scheduled: Scheduled
    tilings: tuple[Any, ...]


class TunableCollector:
    """A scheduler that goes by the rule, and collects what offers more than one tiling."""

    def __init__(self) -> None:
        self.found: list[Tunable] = []

    def __call__(self, function: Any, scheduled: Scheduled) -> Any:
        def noted(tilings: Iterable[Any]) -> Any:
            offered = tuple(tilings)
            if len(offered) > 1:
                self.found.append(Tunable(function, scheduled, offered))
            return offered[0]

        return scheduled(noted)


@dataclass(frozen=True)
class Tuned:
    """What is known of a function: the tilings of the rule and the one to use, and their least seconds for one call."""

    rule: Any
    best: Any
    rule_seconds: float
    best_seconds: float


def gained(found: Sequence[Tuned]) -> str:
    """What tuning gave, in a line."""
    better = sum(each.best != each.rule for each in found)
    before, after = (1e6 * sum(getattr(each, name) for each in found) for name in ("rule_seconds", "best_seconds"))
    return (
        f"{better} of {len(found)} kernels are faster than by the rule; "
        f"one call of each takes {after:.1f} µs instead of {before:.1f} µs"
    )


class Search:
    """Which tilings of a function are still to be measured: the rule's first, then those near the fastest so far.

    What the database knows counts as measured.
    """

    def __init__(self, tunable: Tunable, database: Database, trials: int) -> None:
        self.tunable, self._database = tunable, database
        self._random = np.random.default_rng(0)
        self._known = set(database.times(tunable.function, tunable.tilings))
        # The rule's is what others are compared with, also where it was another one when they were measured.
        self.left = max(
            int(tunable.tilings[0] not in self._known), min(trials, len(tunable.tilings)) - len(self._known)
        )
        self._compares = self.left > 0

    def next_batch(self) -> list[Any]:
        """Some tilings to be measured; none when the search is done.

        In the end the rule's and the fastest are measured once more, one after the other.
        """
        if self.left:
            return self._nearest(min(self.left, BATCH))
        if not self._compares:
            return []
        self._compares = False
        rule, best = self.tunable.tilings[0], self._fastest()
        return [] if best == rule else [rule, best]

    def note(self, tiling: Any, seconds: Sequence[float]) -> int:
        """Keeps the times of a tiling, none if it failed; gives 1 if it is new, else 0."""
        self._database.add(self.tunable.function, tiling, seconds)
        new = int(tiling not in self._known)
        self._known.add(tiling)
        self.left -= new
        return new

    def result(self) -> Tuned:
        rule = self.tunable.tilings[0]
        times = self._database.times(self.tunable.function, self.tunable.tilings)
        best = self._database.fastest(self.tunable.function, self.tunable.tilings)
        return Tuned(rule, best, times.get(rule, FAILED), times.get(best, FAILED))

    def _fastest(self) -> Any:
        times = self._database.times(self.tunable.function, self.tunable.tilings)
        return min(times, key=lambda tiling: times[tiling], default=self.tunable.tilings[0])

    def _nearest(self, count: int) -> list[Any]:
        """New tilings: those that are least unlike the fastest, and a drawn one, so that far ones are seen too."""
        best = self._fastest()
        new = [tiling for tiling in self.tunable.tilings if tiling not in self._known]
        if self.tunable.tilings[0] in self._known:
            new.sort(key=lambda tiling: _distance(tiling, best))
        if len(new) <= count or count < BATCH:
            return new[:count]
        return [*new[: count - 1], new[self._random.integers(count - 1, len(new))]]


def _distance(a: Any, b: Any) -> float:
    """How unlike two tilings are: by how many octaves their numbers differ."""
    if type(a) is not type(b):
        return math.inf
    pairs = zip(asdict(a).values(), asdict(b).values(), strict=True)
    return sum(abs(math.log2((int(x) + 1) / (int(y) + 1))) for x, y in pairs)
