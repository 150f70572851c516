"""Work for executors, which other processes import: pure functions, and some that fail once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mrt.calibration.stream import Place
from mrt.errors import DataError
from mrt.execution import Program
from mrt.symbol import Array


def squared(part: int) -> int:
    return part * part


def late(part: int) -> int:
    """The first parts take longest, so that the last are done first."""
    time.sleep(max(0.0, 0.3 - 0.05 * part))
    return part


def variable(name: str) -> str | None:
    """Of the environment of the process that works."""
    return os.environ.get(name)


def refuses(part: int) -> int:
    """Part 3 raises late, part 5 at once."""
    if part == 3:
        time.sleep(0.3)
    if part in (3, 5):
        raise DataError(f"part {part} holds NaN")
    return part


def outputs(part: Array, program: Program) -> Array:
    return program({"x": part})[0]


def ends_its_process(part: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def read(part: Place) -> list[list[float]]:
    found: list[list[float]] = part.read().arrays["x"].tolist()
    return found


@dataclass(frozen=True)
class FailsOnce:
    """Ends its process by a signal while it works on a part, the first time that it does."""

    marker: Path
    part: int
    signal: int = signal.SIGKILL

    def __call__(self, part: int) -> int:
        if part == self.part and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), self.signal)
            time.sleep(60)
        return part * part


@dataclass(frozen=True)
class Total:
    """The sum of parts, and who took them."""

    value: int = 0
    places: tuple[int, ...] = ()

    def merge(self, other: Total) -> Total:
        return Total(self.value + other.value, tuple(sorted(self.places + other.places)))


@dataclass
class Sum:
    """Adds parts up."""

    begun: FailsOnce | None = None
    found: Total = Total()

    def add(self, part: int) -> None:
        if self.begun is not None:
            self.begun(part)
        self.found = self.found.merge(Total(part, (part,)))

    def total(self) -> Total:
        return self.found


@dataclass(frozen=True)
class SumOnce:
    """Begins a sum whose process ends once on the way."""

    begun: FailsOnce

    def __call__(self) -> Sum:
        return Sum(self.begun)


@dataclass(frozen=True, eq=False)
class State:
    """What is kept: `old` is carried on, `new` is made anew by every step."""

    steps: int
    arrays: Mapping[str, Array] = field(default_factory=dict)
    carried: tuple[str, ...] = ()


def first_state(part: int) -> State:
    return State(0, {"old": np.full(3, part), "new": np.zeros((0, 2), np.int8)})


@dataclass(frozen=True)
class Step:
    """Counts up, and makes `new` of `old`."""

    fails: FailsOnce | None = None

    def __call__(self, state: State) -> State:
        if self.fails is not None:
            self.fails(int(state.arrays["old"][0]))
        return State(state.steps + 1, {"new": state.arrays["old"] * (state.steps + 1)}, ("old",))


def contents(state: State) -> tuple[int, dict[str, list[int]]]:
    return state.steps, {name: array.tolist() for name, array in sorted(state.arrays.items())}


@dataclass
class Places:
    """Tells which processes took parts, which take a while."""

    found: frozenset[int] = frozenset()

    def add(self, part: float) -> None:
        time.sleep(part)
        self.found |= {os.getpid()}

    def total(self) -> Places:
        return self

    def merge(self, other: Places) -> Places:
        return Places(self.found | other.found)
