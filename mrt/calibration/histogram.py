"""The histogram of a tensor's values, and the ranges that methods of calibration take from it."""

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
        """Of finite values of any shape and floating dtype up to float64."""
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
        """Of a bin; 0 where no value but 0 was seen."""
        return 0.0 if self.exponent is None else math.ldexp(1.0, self.exponent)


class Cut(Protocol):
    """A method that takes a range from a histogram."""

    def __call__(self, seen: Histogram) -> tuple[float, float]:
        """The range to cover; it may be wider than what was seen."""


@dataclass(frozen=True)
class Percentile:
    """All but the outermost values: at each end at most (100 - percent) / 2 of a hundred are left out.

    The ends are edges of bins, the nearest that leave out no more.
    """

    percent: float

    def __call__(self, seen: Histogram) -> tuple[float, float]:
        allowed = float(seen.counts.sum()) * (100.0 - self.percent) / 200.0
        below = int(np.count_nonzero(np.cumsum(seen.counts) <= allowed))
        above = int(np.count_nonzero(np.cumsum(seen.counts[::-1]) <= allowed))
        return (below - HALF) * seen.width, (HALF - above) * seen.width


@dataclass(frozen=True)
class LeastError:
    """The range [-t, t], as far as values were seen, with the least mean squared error of a quantizer of `bits` bits.

    A value within has the error step² / 12, step being the range, 0 included, over 2^bits - 1; one beyond has its
    distance from the range, squared; those in the bin at 0 have none. t is an edge of a bin, the largest of equal ones.
    Source of step² / 12: W. R. Bennett, "Spectra of Quantized Signals", 1948.
    """

    bits: int

    def __call__(self, seen: Histogram) -> tuple[float, float]:
        magnitudes = (seen.counts[HALF:] + seen.counts[HALF - 1 :: -1]).astype(np.float64)
        centers, edges = np.arange(HALF) + 0.5, np.arange(1.0, HALF + 1)
        # Of the bins from each edge on: their values, the sums of these and of their squares.
        number, total, square = (
            np.append(np.cumsum((magnitudes * centers**power)[::-1])[::-1], 0.0)[1:] for power in range(3)
        )
        beyond = square - 2.0 * edges * total + edges**2 * number
        filled = np.flatnonzero(seen.counts) - HALF
        lowest, highest = (int(filled[0]), int(filled[-1]) + 1) if filled.size else (0, 0)
        step = (np.minimum(edges, max(highest, 0)) + np.minimum(edges, max(-lowest, 0))) / (2.0**self.bits - 1.0)
        inside = magnitudes.sum() - number - magnitudes[0]
        error = beyond + inside * step**2 / 12.0
        reach = (HALF - int(np.argmin(error[::-1]))) * seen.width
        return -reach, reach


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
