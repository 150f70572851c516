"""What was found of one layer's weight, for when it is asked again, and what was found of it elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from mrt.symbol import Array

RESULTS = 8
"""How many of a layer's weights and shares are kept for when they are asked for again."""
Place = tuple[bytes, bytes]
"""What was asked, and what was asked last of those that left a start."""


@dataclass(frozen=True, eq=False)
class Found:
    """An answer, and what is remembered with it where it is not None; see `Memory`."""

    result: Array
    start: Array | None = None
    nearest: float | None = None
    least: float | None = None


@dataclass
class Memory:
    """What was found of a layer already, as it is asked for by each graph that is expanded.

    results: by what was asked. start: what was found when scales were chosen: the integers less their zero point, like
    the target; and `chosen`, what was asked then. nearest, least: the error of rounding to the nearest at the scale of
    the largest weight, and that of the integers found last, of all channels. ahead: what was found elsewhere and not
    asked for yet. made: what was found here, None where nobody else wants it.
    """

    results: dict[bytes, Array] = field(default_factory=dict)
    start: Array | None = None
    chosen: bytes = b""
    nearest: float = math.nan
    least: float = math.nan
    ahead: dict[Place, Found] = field(default_factory=dict)
    made: dict[Place, Found] | None = None

    @property
    def gain(self) -> float | None:
        """In dB; None where there was no error."""
        return 10 * math.log10(self.nearest / self.least) if self.nearest > 0 and self.least > 0 else None

    def answer(self, key: bytes, find: Callable[[], Found]) -> Array:
        """What was asked by `key`, kept with the latest RESULTS. find: depends on `key` and `start` alone."""
        if key not in self.results:
            place = key, self.chosen
            found = self.ahead.pop(place, None) or find()
            if self.made is not None:
                self.made[place] = found
            self._keep(key, found)
        return self.results[key]

    def _keep(self, key: bytes, found: Found) -> None:
        self.results[key] = found.result
        while len(self.results) > RESULTS:
            self.results.pop(next(iter(self.results)))
        if found.start is not None:
            self.start, self.chosen = found.start, key
        self.nearest = self.nearest if found.nearest is None else found.nearest
        self.least = self.least if found.least is None else found.least
