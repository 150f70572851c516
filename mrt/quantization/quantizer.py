"""Uniform quantizers, symmetric and affine: from a range and bits to a scale, a zero point and an integer range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mrt.symbol import Array
from mrt.symbol.rounding import HALF_EVEN

SMALLEST_SCALE = 2.0**-100
"""Below this a scale is no normal float32 and its reciprocal overflows; such a tensor counts as zero."""


@dataclass(frozen=True)
class ChannelGroups:
    """Groups of `step` channels along `axis`, the last one the remainder where step does not divide.

    Group g has factors[g] times the tensor's common scale, and zero_points[g]. The factors are integers, so that sums
    over channels of different groups stay exact.
    """

    axis: int
    step: int
    factors: tuple[int, ...]
    zero_points: tuple[int, ...]

    def spread(self, values: Sequence[int], shape: Sequence[int]) -> Array:
        """One value a group as an int64 array that broadcasts to `shape`: full along the axis, else 1."""
        channels = np.repeat(np.asarray(values, np.int64), self.step)[: shape[self.axis]]
        return channels.reshape(tuple(-1 if axis == self.axis else 1 for axis in range(len(shape))))

    @property
    def centred(self) -> ChannelGroups:
        """The same with zero points 0."""
        return replace(self, zero_points=(0,) * len(self.zero_points))

    def ends(self, channels: int) -> list[int]:
        """Where each group ends, of `channels` channels."""
        return [*range(self.step, channels, self.step), channels]


@dataclass(frozen=True)
class Target:
    """The integer form that a consumer wants a tensor in: real = scale * (q - zero_point), lo <= q <= hi.

    With `groups` the scale is the common one and each group has its factor and zero point. A pinned scale is shared
    with other tensors and must be met; a free one may be moved to what a multiplier really gives. An exact one is that
    of trained quantization: what is brought to it is rounded once, by a multiplier that is nearly the real ratio; real
    values are rounded as `rounding` says, before the zero point is added or, with zero_point_first, behind it.
    """

    scale: float
    lo: int
    hi: int
    pinned: bool = False
    zero_point: int = 0
    groups: ChannelGroups | None = None
    exact: bool = False
    rounding: str = HALF_EVEN
    zero_point_first: bool = False

    @property
    def is_half_even(self) -> bool:
        """Whether halves go to even before the zero point is added, as where inputs are quantized."""
        return self.rounding == HALF_EVEN and not self.zero_point_first

    @property
    def reach(self) -> int:
        """The largest |q - zero_point|."""
        zero_points = (self.zero_point,) if self.groups is None else self.groups.zero_points
        return max(max(abs(self.lo - zero), abs(self.hi - zero)) for zero in zero_points)

    @property
    def group_targets(self) -> tuple[Target, ...]:
        """The forms with one scale each that its channel groups have, equal ones once; itself where it has none."""
        return tuple(dict.fromkeys(self._each_group_target()))

    def channel_targets(self, channels: int) -> tuple[Target, ...]:
        """The form with one scale that each of so many channels has."""
        each = self._each_group_target()
        step = channels if self.groups is None else self.groups.step
        return tuple(each[channel // step] for channel in range(channels))

    @property
    def real_range(self) -> tuple[float, float]:
        """The least and the greatest real value that the form holds."""
        each = self.group_targets
        return (
            min(part.scale * (part.lo - part.zero_point) for part in each),
            max(part.scale * (part.hi - part.zero_point) for part in each),
        )

    @property
    def with_one_scale(self) -> Target:
        """A free quantizer for what the channel groups hold: at the coarsest of their scales, with room for all."""
        if self.groups is None:
            return self
        lo, hi = self.real_range
        steps = max(self.hi - self.lo, 1)
        scale = max(max(part.scale for part in self.group_targets), (max(hi, 0.0) - min(lo, 0.0)) / steps)
        return Target(scale, self.lo, self.hi, zero_point=int(np.rint(self.lo - min(lo, 0.0) / scale)))

    def _each_group_target(self) -> list[Target]:
        if self.groups is None:
            return [self]
        pairs = zip(self.groups.factors, self.groups.zero_points, strict=True)
        return [replace(self, scale=self.scale * f, zero_point=z, groups=None) for f, z in pairs]

    def scales(self, shape: Sequence[int]) -> Array:
        """The scale of every channel of a tensor of `shape`; float64, of its rank, each axis 1 or full."""
        if self.groups is None:
            return np.full((1,) * len(shape), self.scale)
        return self.scale * self.groups.spread(self.groups.factors, shape)

    def zero_points(self, shape: Sequence[int]) -> Array:
        """The zero point of every channel of a tensor of `shape`; int64, like `scales`."""
        if self.groups is None:
            return np.full((1,) * len(shape), self.zero_point, np.int64)
        return self.groups.spread(self.groups.zero_points, shape)


def largest(bits: int, signed: bool = True) -> int:
    """The largest value of a symmetric quantizer: 2^(bits-1) - 1 signed, 2^bits - 1 unsigned."""
    return (1 << (bits - 1)) - 1 if signed else (1 << bits) - 1


def symmetric_target(magnitude: float, bits: int, signed: bool, pinned: bool = False) -> Target:
    """The quantizer that puts the real value `magnitude` at its largest integer.

    A tensor that was only ever zero gets scale 1: there is nothing to resolve.
    """
    top = largest(bits, signed)
    scale = magnitude / top
    if scale < SMALLEST_SCALE:
        scale = 1.0
    return Target(scale, -top if signed else 0, top, pinned)


def affine_target(lo: float, hi: float, bits: int, signed: bool) -> Target:
    """The quantizer of the real range [lo, hi], widened to hold zero, over all 2^bits integers.

    scale = (hi - lo) / (2^bits - 1); the zero point is the nearest integer to lowest - lo / scale, so that the real
    zero is exactly an integer and the range moves by at most half a step. A tensor that was only ever zero gets
    scale 1.
    """
    lowest = -(1 << (bits - 1)) if signed else 0
    highest = lowest + (1 << bits) - 1
    lo, hi = min(lo, 0.0), max(hi, 0.0)
    scale = (hi - lo) / (highest - lowest)
    if scale < SMALLEST_SCALE:
        return Target(1.0, lowest, highest, zero_point=max(lowest, 0))
    zero_point = int(np.clip(np.rint(lowest - lo / scale), lowest, highest))
    return Target(scale, lowest, highest, zero_point=zero_point)


def round_half_away(values: Array, dtype: type[np.signedinteger] = np.int64) -> Array:
    """The nearest integers, halves away from zero: how parameters are rounded. dtype: that holds them all."""
    # The cast rounds towards zero.
    rounded: Array = (values + np.copysign(0.5, values)).astype(dtype)
    return rounded


def quantize_parameter(values: Array, scale: Array | float, top: int) -> Array:
    """values / scale, clipped to [-top, top] and rounded; int64."""
    return round_half_away(np.clip(np.asarray(values, np.float64) / scale, -top, top))
