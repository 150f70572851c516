"""The observer of a tensor's channels: the range of each, of a size that does not grow with the samples."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mrt.symbol import Array

ROW = 2**12
"""Elements that are compared at once where channels are innermost in memory: what the first cache holds twice."""


@dataclass(frozen=True, eq=False)
class ChannelObserver:
    """The least and the greatest value of every channel, and the largest reach of any sample's channel.

    lo, hi, reach: float64 (C,). lambda_: as of HistoricalObserver, whose reach is taken of each channel by itself; None
    leaves the reach out. count: values observed of each channel. Like every observer the state depends on the set of
    samples only.
    """

    lo: Array
    hi: Array
    reach: Array
    lambda_: float | None = None
    count: int = 0

    CLEARLY = 0.95

    @classmethod
    def of(cls, channels: int, lambda_: float | None = None) -> ChannelObserver:
        """The state before any observation."""
        return cls(np.full(channels, np.inf), np.full(channels, -np.inf), np.zeros(channels), lambda_)

    def observe(self, samples: Array) -> ChannelObserver:
        """The state after `samples`: (number of samples, C, elements of one channel), finite values of any dtype."""
        if not samples.size:
            return self
        reach = self.reach
        if self.lambda_ is not None:
            for sample in samples:
                reach = np.maximum(reach, self._reach(sample, self.lambda_))
        # Adding 0 makes one of the two zeros, so that the order of samples cannot show.
        lo, hi = (end.astype(np.float64) + 0.0 for end in _ends(samples))
        count = self.count + samples.shape[0] * samples.shape[2]
        return ChannelObserver(np.minimum(self.lo, lo), np.maximum(self.hi, hi), reach, self.lambda_, count)

    def merge(self, other: ChannelObserver) -> ChannelObserver:
        """The state after what both have observed."""
        lo, hi = np.minimum(self.lo, other.lo), np.maximum(self.hi, other.hi)
        reach, count = np.maximum(self.reach, other.reach), self.count + other.count
        return ChannelObserver(lo, hi, reach, self.lambda_, count)

    @property
    def is_finite(self) -> bool:
        """Whether every channel was observed and held neither NaN nor infinity."""
        return bool(np.isfinite(self.lo).all() and np.isfinite(self.hi).all())

    def ranges(self) -> tuple[tuple[float, float], ...]:
        """The range of every channel, cut to ±reach where that was taken; (0, 0) before any observation."""
        if not (self.lo <= self.hi).all():
            return tuple((0.0, 0.0) for _ in self.lo)
        lo, hi = self.lo, self.hi
        if self.lambda_ is not None:
            lo, hi = np.maximum(lo, -self.reach), np.minimum(hi, self.reach)
        return tuple(zip(lo.tolist(), hi.tolist(), strict=True))

    def _reach(self, sample: Array, lambda_: float) -> Array:
        values = np.ascontiguousarray(sample, np.float64)
        largest = np.abs(values).max(axis=1)
        mean = values.mean(axis=1)
        deviation = np.sqrt(np.square(values - mean[:, None]).mean(axis=1))
        spread = np.abs(mean) + lambda_ * deviation
        reach: Array = np.where(spread < self.CLEARLY * largest, spread, largest)
        return reach


def by_channel(samples: Array, axis: int) -> Array:
    """Samples of one tensor, (n, *shape), as (n, C, elements of one channel); axis: of a sample, counts channels."""
    return np.moveaxis(samples, axis + 1, 1).reshape(len(samples), samples.shape[axis + 1], -1)


def _ends(samples: Array) -> tuple[Array, Array]:
    """The least and the greatest value of each channel of (n, C, elements of one channel), NaN where it holds one."""
    _, channels, elements = samples.shape
    if elements == 1 or samples.strides[1] > samples.strides[2]:
        return samples.min(axis=(0, 2)), samples.max(axis=(0, 2))
    rows = np.ascontiguousarray(samples.transpose(0, 2, 1).reshape(-1, channels))
    # NumPy compares row by row, at a cost for each: several are taken as one, and the rest by themselves.
    together = max(min(ROW // channels, math.isqrt(len(rows))), 1)
    whole = len(rows) // together * together
    wide, rest = rows[:whole].reshape(-1, together * channels), rows[whole:]
    lo, hi = (end.reshape(together, channels) for end in (wide.min(axis=0), wide.max(axis=0)))
    return np.vstack([lo, rest]).min(axis=0), np.vstack([hi, rest]).max(axis=0)
