"""The phases of a deconvolution, which a convolution gives as channels, laid between each other."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from mrt.symbol import Array, Interval, Operator, TensorType


@dataclass(frozen=True)
class JoinPhases(Operator):
    """Y[n, (g, c), p] = X[n, (g, r, c), q] with q stride + r = p + begin along each spatial axis.

    Channels are counted by group g, phase r, of which there are prod(stride), and c. The backend makes it of
    deconvolutions (`DeconvolutionAsConvolution`). lengths: the output's positions.
    """

    stride: tuple[int, ...]
    begin: tuple[int, ...]
    lengths: tuple[int, ...]
    num_group: int = 1

    op = "join_phases"

    def infer(self, x: TensorType) -> TensorType:
        return x.with_shape((x.shape[0], x.shape[1] // prod(self.stride), *self.lengths))

    def evaluate(self, x: Array) -> Array:
        batch, channels, *places = x.shape
        rank, per_group = len(places), channels // prod(self.stride) // self.num_group
        apart = x.reshape(batch, self.num_group, *self.stride, per_group, *places)
        spatial = [axis for i in range(rank) for axis in (3 + rank + i, 2 + i)]
        joined = apart.transpose(0, 1, 2 + rank, *spatial)
        whole = joined.reshape(batch, -1, *(n * s for n, s in zip(places, self.stride, strict=True)))
        cuts = (slice(first, first + length) for first, length in zip(self.begin, self.lengths, strict=True))
        return whole[(slice(None), slice(None), *cuts)]

    def bounds(self, x: Interval) -> Interval:
        """For each channel the hull over its phases and positions."""
        hull, shape = x.reduced([0, 1]), self.infer(TensorType(x.shape, "int32")).shape
        ones = (1,) * len(self.stride)

        def apart(bound: Array) -> Array:
            full = np.broadcast_to(bound, (bound.shape[0], x.shape[1], *ones))
            return full.reshape(len(full), self.num_group, prod(self.stride), -1)

        lo, hi = apart(hull.lo).min(axis=2), apart(hull.hi).max(axis=2)
        return Interval(lo.reshape(len(lo), -1, *ones), hi.reshape(len(hi), -1, *ones), shape)
