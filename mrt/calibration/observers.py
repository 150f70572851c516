"""Observers: what is kept of the tensors that calibration sees, of a size that does not grow with their number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from typing_extensions import Self

from mrt.symbol import Array


class Observer(Protocol):
    """The state of observing one tensor: a frozen value, given anew by every observation.

    What it says depends on the set of samples observed only, to the last bit: not on their order, on how they were
    batched, or on how partial states were merged.
    """

    def observe(self, samples: Array) -> Self:
        """The state after `samples`: (number of samples, elements of one), finite values of any dtype."""

    def merge(self, other: Self) -> Self:
        """The state after what both have observed."""


class Ranging(Observer, Protocol):
    """An observer of a tensor's range."""

    @property
    def lo(self) -> float:
        """The smallest value observed, infinity before any."""

    @property
    def hi(self) -> float:
        """The largest value observed, -infinity before any."""

    @property
    def covered(self) -> tuple[float, float]:
        """The range that a quantizer shall cover: lo to hi or less; without meaning before any value."""


@dataclass(frozen=True)
class RangeObserver:
    """The smallest and the largest value observed."""

    lo: float = np.inf
    hi: float = -np.inf

    def observe(self, samples: Array) -> RangeObserver:
        if not samples.size:
            return self
        # Adding 0 makes one of the two zeros, so that the order of samples cannot show.
        return self.merge(RangeObserver(float(samples.min()) + 0.0, float(samples.max()) + 0.0))

    def merge(self, other: RangeObserver) -> RangeObserver:
        return RangeObserver(min(self.lo, other.lo), max(self.hi, other.hi))

    @property
    def covered(self) -> tuple[float, float]:
        return self.lo, self.hi


@dataclass(frozen=True)
class HistoricalObserver:
    """The range observed and the largest reach of any sample.

    A sample's reach is |mean| + lambda * standard deviation over its elements, or its largest absolute value where the
    former is not below CLEARLY times the latter. Source: the Model Representation Tool (MRT) of CortexLabs'
    cvm-runtime, whose calibration takes this as threshold of one batch and keeps the largest of its history; here the
    batch is one sample, so that batching cannot show. Float64, one sample at a time.
    """

    lambda_: float
    lo: float = np.inf
    hi: float = -np.inf
    reach: float = 0.0

    CLEARLY = 0.95

    def observe(self, samples: Array) -> HistoricalObserver:
        seen = RangeObserver().observe(samples)
        reach = max((self._reach(sample) for sample in samples), default=0.0) if samples.size else 0.0
        return self.merge(HistoricalObserver(self.lambda_, seen.lo, seen.hi, reach))

    def merge(self, other: HistoricalObserver) -> HistoricalObserver:
        return HistoricalObserver(
            self.lambda_, min(self.lo, other.lo), max(self.hi, other.hi), max(self.reach, other.reach)
        )

    @property
    def covered(self) -> tuple[float, float]:
        return max(self.lo, -self.reach), min(self.hi, self.reach)

    def _reach(self, sample: Array) -> float:
        # One contiguous sample at a time: the order in which NumPy adds must not depend on the batch.
        values = sample.astype(np.float64, order="C")
        largest = float(np.abs(values).max())
        mean = float(values.mean())
        values -= mean
        deviation = float(np.sqrt(np.square(values).mean()))
        spread = abs(mean) + self.lambda_ * deviation
        return spread if spread < self.CLEARLY * largest else largest


@dataclass(frozen=True, eq=False)
class MeanObserver:
    """The mean of every channel over samples and positions, or that of its values' squares.

    power: 1 or 2. channels: how many; inner: elements of one sample between an element and the same of the next
    channel. count: elements seen of each channel. parts: arrays (channels,) of which no two overlap in bits and whose
    sum is exactly that of the samples' sums, so that their order cannot show. A sample is summed in float64, one at a
    time.
    """

    channels: int
    inner: int
    count: int = 0
    parts: tuple[Array, ...] = ()
    power: int = 1

    @classmethod
    def along(cls, shape: Sequence[int], axis: int, power: int = 1) -> MeanObserver:
        """For tensors of `shape`, whose `axis` counts channels."""
        return cls(shape[axis], math.prod(shape[axis + 1 :]), power=power)

    def observe(self, samples: Array) -> MeanObserver:
        parts, count = self.parts, self.count
        for sample in samples:
            # In the tensor's own order, whatever that of memory: NumPy's sums depend on it.
            apart = sample.astype(np.float64, order="C").reshape(-1, self.channels, self.inner)
            if self.power == 2:
                apart = np.square(apart)
            parts = _exact_sum(parts, apart.sum(axis=(0, 2)))
            count += apart.shape[0] * apart.shape[2]
        return replace(self, count=count, parts=parts)

    def merge(self, other: MeanObserver) -> MeanObserver:
        parts = self.parts
        for part in other.parts:
            parts = _exact_sum(parts, part)
        return replace(self, count=self.count + other.count, parts=parts)

    @property
    def mean(self) -> tuple[float, ...]:
        """The mean of every channel; 0 before any element."""
        if not self.count:
            return (0.0,) * self.channels
        return tuple(math.fsum(values) / self.count for values in zip(*(p.tolist() for p in self.parts), strict=True))


def _exact_sum(parts: Iterable[Array], value: Array) -> tuple[Array, ...]:
    """Float64 arrays with exactly the sum of `parts` and `value`: what each addition rounds off is kept.

    Source: J. R. Shewchuk, "Adaptive Precision Floating-Point Arithmetic and Fast Robust Geometric Predicates", 1997,
    Grow-Expansion.
    """
    kept = []
    for part in parts:
        total = value + part
        taken = total - value
        rounded_off = (value - (total - taken)) + (part - taken)
        if rounded_off.any():
            kept.append(rounded_off)
        value = total
    return (*kept, value)
