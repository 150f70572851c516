"""A tensor that is joined of others."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mrt.calibration import Range


@dataclass(frozen=True)
class Parts:
    """The parts of which a tensor consists along `axis`: how many channels each has, and the values that it takes."""

    axis: int
    lengths: tuple[int, ...]
    ranges: tuple[tuple[float, float], ...]

    @property
    def step(self) -> int:
        """The most channels of which every part is a multiple."""
        return math.gcd(*self.lengths)

    @property
    def channels(self) -> tuple[tuple[float, float], ...]:
        """The range of every channel."""
        pairs = zip(self.lengths, self.ranges, strict=True)
        return tuple(found for length, found in pairs for _ in range(length))

    def within(self, found: Range) -> Parts:
        """The same with ranges that do not leave that of the tensor."""
        held = tuple((min(max(lo, found.lo), found.hi), max(min(hi, found.hi), found.lo)) for lo, hi in self.ranges)
        return Parts(self.axis, self.lengths, held)
