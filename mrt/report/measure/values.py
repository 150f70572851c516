"""What is kept of the values that a layer gives: exact extremes and counts, and a fixed choice of its elements."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mrt.report.facts import Channel, Errors, Histogram, Values
from mrt.report.measure.numbers import rounded
from mrt.symbol import Array

BINS, ERROR_BINS = 96, 61
KEPT = 2**16
"""Elements of a layer that are kept, over all samples; of the errors a quarter of that."""
CHANNELS, KEPT_OF_CHANNEL = 32, 2**10
"""Channels that are told of, and elements of each that are kept, over all samples."""
QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)
WIDE = 4.0
"""A quantizer's range that is so many times as wide as the values is not all drawn."""


@dataclass(eq=False)
class Seen:
    """The values of one tensor over the samples. samples: how many there will be. axis: that counts channels, or None.

    ends: the least and the greatest real value that the quantizer holds, and half its step; None without one.
    """

    shape: tuple[int, ...]
    samples: int
    axis: int | None
    ends: tuple[float, float, float] | None
    count: int = 0
    zeros: int = 0
    clipped: int = 0
    lo: float = np.inf
    hi: float = -np.inf
    worst: float = 0.0
    kept: list[Array] = field(default_factory=list)
    errors: list[Array] = field(default_factory=list)
    channels: list[Array] = field(default_factory=list)
    extremes: list[Array] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = np.random.default_rng(0)
        size = int(np.prod(self.shape))
        self._places = _some(random, size, max(KEPT // self.samples, 1))
        self._error_places = _some(random, size, max(KEPT // self.samples // 4, 1))
        length = 1 if self.axis is None else self.shape[self.axis]
        self.shown = np.unique(np.linspace(0, length - 1, min(length, CHANNELS)).astype(np.int64))
        self._positions = _some(random, size // length, max(KEPT_OF_CHANNEL // self.samples, 1))

    def add(self, values: Array) -> None:
        """values: of one sample, of the shape."""
        flat = values.reshape(-1)
        self.count += flat.size
        self.zeros += flat.size - int(np.count_nonzero(flat))
        lo, hi = float(flat.min()), float(flat.max())
        self.lo, self.hi = min(self.lo, lo), max(self.hi, hi)
        if self.ends is not None:
            low, high, half = self.ends
            if lo < low - half or hi > high + half:
                self.clipped += int(np.count_nonzero((flat < low - half) | (flat > high + half)))
        self.kept.append(flat[self._places].astype(np.float32))
        if self.axis is not None:
            by_channel = np.moveaxis(values, self.axis, 0)[self.shown].reshape(len(self.shown), -1)
            self.channels.append(by_channel[:, self._positions].astype(np.float32))
            self.extremes.append(np.stack([by_channel.min(1), by_channel.max(1)], 1).astype(np.float64))

    def add_errors(self, steps: Array, is_zero: Array) -> None:
        """steps: integer minus float in steps of the tensor. is_zero: where both are 0."""
        places = self._error_places
        self.errors.append(steps.reshape(-1)[places][~is_zero.reshape(-1)[places]].astype(np.float32))
        self.worst = max(self.worst, float(np.abs(steps).max(initial=0.0)))

    @property
    def facts(self) -> Values | None:
        """None where no sample was added."""
        if not self.kept:
            return None
        values = np.concatenate(self.kept)
        lo, hi = self.lo, self.hi
        if self.ends is not None and self.ends[1] - self.ends[0] < WIDE * (hi - lo):
            lo, hi = min(lo, self.ends[0]), max(hi, self.ends[1])
        return Values(
            count=self.count,
            lo=rounded(self.lo),
            hi=rounded(self.hi),
            zeros=rounded(self.zeros / self.count),
            clipped=rounded(self.clipped / self.count),
            histogram=histogram(values[values != 0], lo, hi, BINS),
            channel_count=None if self.axis is None else self.shape[self.axis],
            channels=self._channels(),
            errors=self._errors(),
        )

    def _channels(self) -> list[Channel]:
        if self.axis is None:
            return []
        inner = np.quantile(np.concatenate(self.channels, axis=1), QUANTILES, axis=1).T
        ends = np.stack(self.extremes)
        least, greatest = ends[..., 0].min(0), ends[..., 1].max(0)
        return [
            Channel(channel=int(channel), spread=[rounded(x, 3) for x in (low, *middle, high)])
            for channel, low, middle, high in zip(self.shown, least, inner, greatest, strict=True)
        ]

    def _errors(self) -> Errors | None:
        steps = np.concatenate(self.errors) if self.errors else np.zeros(0, np.float32)
        if not steps.size:
            return None
        reach = max(float(np.quantile(np.abs(steps), 0.995)), 1.0)
        mean, square = float(steps.mean(dtype=np.float64)), float(np.square(steps, dtype=np.float64).mean())
        shown = histogram(steps, -reach, reach, ERROR_BINS)
        return Errors(histogram=shown, rms=rounded(np.sqrt(square)), mean=rounded(mean))


def histogram(values: Array, lo: float, hi: float, bins: int) -> Histogram:
    """Counts in bins of one width; values beyond the ends are left out."""
    if not hi > lo:
        lo, hi = lo - 0.5, lo + 0.5
    counts, _ = np.histogram(values, bins=bins, range=(lo, hi))
    return Histogram(lo=rounded(lo, 6), hi=rounded(hi, 6), counts=[int(count) for count in counts])


def _some(random: np.random.Generator, size: int, most: int) -> Array:
    """All places below `size`, or so many of them by chance, the same for every sample."""
    return np.arange(size) if size <= most else np.sort(random.choice(size, most, replace=False))
