"""The histogram of a tensor's values, from which methods of calibration take ranges."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from mrt.calibration.observers import RangeObserver
from mrt.symbol import Array

HALF = 2**11
"""Bins on each side of 0: 8 to 16 of them for each step of a quantizer of 8 bits."""
PIECE = 2**16
"""Values that are counted at once: what the second cache holds in float64."""


@dataclass(frozen=True, eq=False)
class Histogram:
    """How many values lie in each of 2 · HALF bins of one width.

    counts: int64 (2 · HALF,); bin i holds the values in [(i - HALF), (i - HALF + 1)) · 2^exponent. The exponent is the
    least that has room for the largest magnitude. Widths are powers of two, so that bins of one are whole bins of any
    coarser one: counts depend on the set of values only, whatever was seen first.
    """

    counts: Array = field(default_factory=lambda: np.zeros(2 * HALF, np.int64))
    exponent: int | None = None

    @classmethod
    def of(cls, values: Array) -> Histogram:
        """The histogram of finite values of any shape and floating dtype up to float64."""
        flat = values.reshape(-1)
        largest = float(np.abs(flat).max(initial=0.0))
        exponent = math.frexp(largest)[1] - HALF.bit_length() + 1 if largest else None
        counts = np.zeros(2 * HALF, np.int64)
        for first in range(0, flat.size, PIECE):
            places = np.floor(np.ldexp(flat[first : first + PIECE].astype(np.float64), -(exponent or 0)))
            counts += np.bincount(places.astype(np.int64) + HALF, minlength=2 * HALF)
        return cls(counts, exponent)

    def merge(self, other: Histogram) -> Histogram:
        """The histogram of the values of both."""
        exponents = [each.exponent for each in (self, other) if each.exponent is not None]
        exponent = max(exponents, default=None)
        return Histogram(self._coarser(exponent) + other._coarser(exponent), exponent)

    def _coarser(self, exponent: int | None) -> Array:
        """The counts in bins of width 2^exponent, which is not below this one's."""
        if exponent is None or self.exponent is None or exponent == self.exponent:
            return self.counts
        places = (np.arange(-HALF, HALF) >> min(exponent - self.exponent, HALF.bit_length())) + HALF
        counts = np.zeros_like(self.counts)
        np.add.at(counts, places, self.counts)
        return counts

    @property
    def width(self) -> float:
        """The width of a bin; 0 where only zeros were seen."""
        return 0.0 if self.exponent is None else math.ldexp(1.0, self.exponent)


class Cut(Protocol):
    """A method that takes a range from a histogram."""

    def __call__(self, seen: Histogram) -> tuple[float, float]:
        """The range to cover; it may be wider than what was seen."""


@dataclass(frozen=True, eq=False)
class HistogramObserver:
    """The range observed, and the histogram from which `cut` takes what is covered of it."""

    cut: Cut
    range: RangeObserver = field(default_factory=RangeObserver)
    seen: Histogram = field(default_factory=Histogram)

    @property
    def lo(self) -> float:
        return self.range.lo

    @property
    def hi(self) -> float:
        return self.range.hi

    def observe(self, samples: Array) -> HistogramObserver:
        seen = self.seen.merge(Histogram.of(samples))
        return replace(self, range=self.range.observe(samples), seen=seen)

    def merge(self, other: HistogramObserver) -> HistogramObserver:
        return replace(self, range=self.range.merge(other.range), seen=self.seen.merge(other.seen))

    @property
    def covered(self) -> tuple[float, float]:
        lo, hi = self.cut(self.seen)
        return min(max(self.lo, lo), hi), max(min(self.hi, hi), lo)
