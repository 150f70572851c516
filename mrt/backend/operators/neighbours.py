"""Neighbouring positions as channels, each as often as windows hold it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.symbol import Array, Interval, Operator, TensorType


@dataclass(frozen=True)
class Neighbours(Operator):
    """Y[n, (c, f), p] = X[n, c, p + f step] along `axis`, for f < count and all p of which the last f is in X.

    The backend makes it of convolutions (`TapsAsChannels`).
    """

    axis: int
    count: int
    step: int = 1

    op = "neighbours"

    def infer(self, x: TensorType) -> TensorType:
        lengths = list(x.shape)
        lengths[1] *= self.count
        lengths[self.axis] -= self.reach
        return x.with_shape(tuple(lengths))

    @property
    def reach(self) -> int:
        """From the first neighbour to the last."""
        return (self.count - 1) * self.step

    def evaluate(self, x: Array) -> Array:
        length = x.shape[self.axis] - self.reach
        moved = [np.take(x, np.arange(length) + f * self.step, self.axis) for f in range(self.count)]
        batch, channels, *spatial = moved[0].shape
        return np.stack(moved, axis=2).reshape(batch, channels * self.count, *spatial)

    def bounds(self, x: Interval) -> Interval:
        """For each channel the hull over positions."""
        hull, shape = x.reduced([0, 1]), self.infer(TensorType(x.shape, "int32")).shape
        times = 1 if hull.lo.shape[1] == 1 else self.count
        return Interval(np.repeat(hull.lo, times, axis=1), np.repeat(hull.hi, times, axis=1), shape)
