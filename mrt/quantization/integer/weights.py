"""Quantizing the weight of a reduction so that its requantization is exact."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from mrt.quantization.algorithms.algorithm import Covering, Rounded, UnroundedWeight
from mrt.quantization.algorithms.nearest_rounding import nearest_integers
from mrt.quantization.granularity import integer_factors
from mrt.quantization.integer.requantize import absorbable_ratio, frac_limit, pre_shift_for
from mrt.quantization.options import WeightConfig
from mrt.quantization.quantizer import largest
from mrt.symbol import Array

BIAS_BITS, MOST_BIAS_BITS = 22, 29
"""A bias takes at most so many bits of the accumulator, or as many as the sums; where it would take more, the weight's
scale rises. The former where that does not show in the output, the latter where it does."""
LEAST_RATIO = 2.0**-24
"""The smallest factor from accumulator to target: at a shift of 31 its multiplier still has 7 bits."""
FACTOR_BITS = 4
"""The scales of one output channel's groups of input channels are at most 2^4 times the finest."""
ROUNDS = 8
CORRECTION_SHARE = 64
"""Bias correction finds one part in so many of an accumulator's bound left free for its constant."""


@dataclass(frozen=True, eq=False)
class QuantizedWeight:
    """W[o, i] = scale[o] * factors[o, i] * (integers[o, i] - zero_point[o, i]).

    integers: int64 or narrower, of the weight's shape (O, I, ...). scale: float64 (O,), one for each output channel.
    zero_point, factors: int64 (O, I), equal within a group of input channels.
    """

    integers: Array
    scale: Array
    zero_point: Array
    factors: Array

    @property
    def centred(self) -> Array:
        """factors * (integers - zero_point), of the weight's shape: the weight in steps of `scale`."""
        zero_point, factors = _distinct(self.zero_point), _distinct(self.factors)
        if not zero_point.any() and (factors == 1).all():
            return self.integers
        rank = self.integers.ndim
        centred: Array = spread(factors, rank) * (self.integers - spread(zero_point, rank))
        return centred

    @property
    def real(self) -> Array:
        """What the integers stand for, float64 of the weight's shape."""
        result: Array = self.centred * spread(self.scale, self.integers.ndim)
        return result


class Magnitudes(Protocol):
    """From centred integers like the weight to the largest |accumulator| per channel."""

    @property
    def given(self) -> tuple[Array | int, ...]:
        """What they depend on besides the layer and the integers."""

    def __call__(self, centred: Array, /) -> Array: ...


@dataclass(frozen=True, eq=False)
class Accumulator:
    """What the scales of a weight are settled for.

    step: the scale of the data operand, one or (O,), as the accumulator of each output channel counts it. target: (O,)
    or one, the scale to which the accumulator is brought, if known. bias: (O,) float, what is added to it.
    """

    step: Array | float
    target: Array | None
    bias: Array | None
    magnitudes: Magnitudes

    def offset(self, channels: int) -> Array:
        """(O,), the |bias|."""
        return np.zeros(channels) if self.bias is None else np.abs(self.bias).astype(np.float64)

    def is_same(self, other: Accumulator) -> bool:
        """Whether both are the accumulator of one layer for the same data, target and bias."""
        pairs = ((each.step, each.target, each.bias, *each.magnitudes.given) for each in (self, other))
        return all(np.array_equal(one, two) for one, two in zip(*pairs, strict=True))


def quantize_weight(
    weight: Array,
    config: WeightConfig,
    ends: list[int],
    accumulator: Accumulator,
    rounded: Rounded = nearest_integers,
    covering: Covering | None = None,
) -> QuantizedWeight:
    """Integers for a float `weight` (O, I, ...), and scales and zero points.

    ends: where the groups of input channels end. rounded: from a weight at its scales to integers. covering: finds the
    share of the range that the scales cover; all of it where there is none.

    1. The scale spreads the range of the channel (or layer), in each group of input channels, over the integers: the
       largest |weight| is 2^(bits-1) - 1 if symmetric; if affine the range from the least to the greatest, widened to
       hold zero, takes all 2^bits. Groups have integer multiples of their output channel's scale. Where less of the
       range is covered, the rest saturates.
    2. It rises where the bias, or the factor to the target, would not fit otherwise; an all-zero channel gets
       its scale from this alone. A bias fits that takes 22 bits, or as many as the sums, or 29 where the
       weights' rounding would be seen in the target.
    3. It rises to the nearest value whose factor to the target is exactly frac * 2^-shift, frac as wide as the
       accumulator's bound allows; then the weight is quantized and the bound is checked again.
    4. The weight, rounded to the nearest so far, is rounded at these scales as `rounded` says, and the bound is checked
       once more.
    """
    draft = _draft(weight, config, ends)
    if covering is not None:
        draft = draft.covering(covering(draft.at_shares))
    found = _absorbing(draft, *_fitting(draft, accumulator), accumulator, nearest_integers)
    if rounded is nearest_integers:
        return found
    found = draft.quantized(found.scale, rounded)
    return _absorbing(draft, found, accumulator.magnitudes(found.centred), accumulator, rounded)


def _fitting(draft: _Draft, accumulator: Accumulator) -> tuple[QuantizedWeight, Array]:
    """Steps 1 and 2 of `quantize_weight`, rounded to the nearest, and the |accumulators| then."""
    live = draft.live
    quantized = draft.quantized(live, nearest_integers)
    sums = accumulator.magnitudes(quantized.centred)
    scale = np.maximum(draft.scale, _least_scale(draft.weight, accumulator, sums))
    if draft.config.scales == "layer":
        scale = np.full(len(scale), scale.max())
    scale[scale == 0] = scale.max() or 1.0
    if not np.array_equal(scale, live):
        quantized = draft.quantized(scale, nearest_integers)
        sums = accumulator.magnitudes(quantized.centred)
    return quantized, sums


def _absorbing(
    draft: _Draft, quantized: QuantizedWeight, sums: Array, accumulator: Accumulator, rounded: Rounded
) -> QuantizedWeight:
    """Step 3: at scales at or above those of `quantized`, whose |accumulators| are `sums`."""
    target = accumulator.target
    if target is None:
        return quantized
    for _ in range(ROUNDS):
        exact = _absorbing_scale(quantized.scale, accumulator, target, sums)
        if np.allclose(exact, quantized.scale, rtol=1e-12, atol=0):
            break
        quantized = draft.quantized(exact, rounded)
        sums = accumulator.magnitudes(quantized.centred)
    return quantized


def _least_scale(weight: Array, accumulator: Accumulator, sums: Array) -> Array:
    """The scale, one for each output channel, below which the bias or the factor to the target would not fit.

    sums: the |accumulators|.
    """
    step, target, offset = accumulator.step, accumulator.target, accumulator.offset(len(weight))
    floor: Array = offset / (step * np.maximum(2.0**BIAS_BITS, sums))
    if target is None:
        return floor
    # Weights off by half a scale, at random, are off by less than a step of the target below this scale.
    each = step * np.maximum(accumulator.magnitudes(np.broadcast_to(np.int64(1), weight.shape)), 1)
    unseen = target * math.sqrt(weight[0].size) / each
    least = offset / (step * np.maximum(2.0**MOST_BIAS_BITS, sums))
    floor = np.maximum(np.minimum(floor, unseen), least)
    return np.maximum(floor, LEAST_RATIO * target / step)


def spread(values: Array, rank: int) -> Array:
    """(O,) or (O, I) as (O, 1, ...) or (O, I, 1, ...)."""
    return values.reshape(*values.shape, *(1,) * (rank - values.ndim))


def _distinct(values: Array) -> Array:
    """(O, I) as (O, 1) where one value in memory stands for all input channels."""
    return values[:, :1] if values.strides[1] == 0 else values


def _along(values: Array, lengths: Array) -> Array:
    """(O, groups) as (O, I), each repeated as often as its group is long; one is not, it stands for all."""
    if len(lengths) == 1:
        return np.broadcast_to(values, (len(values), int(lengths[0])))
    return np.repeat(values, lengths, axis=1)


@dataclass(frozen=True, eq=False)
class _Draft:
    """A weight before its scale is settled. scale: the least one, (O,); lo: the least weight of each group, at most 0,
    like `factors` (O, I)."""

    weight: Array
    config: WeightConfig
    scale: Array
    lo: Array
    factors: Array

    @property
    def live(self) -> Array:
        """`scale`, with that of others for channels that are zero."""
        return np.where(self.scale > 0, self.scale, self.scale.max() or 1.0)

    def covering(self, shares: Array) -> _Draft:
        """With scales for these shares (O,) of what they cover now; one share where the layer has one scale."""
        if self.config.scales == "layer":
            shares = np.broadcast_to(shares.max(), shares.shape)
        lo = np.broadcast_to(_distinct(self.lo) * shares[:, None], self.lo.shape)
        return replace(self, scale=self.scale * shares, lo=lo)

    def at_shares(self, shares: Array) -> UnroundedWeight:
        """The weight at scales that cover such shares (O,) of its range."""
        made = self.covering(shares)
        return made.at(made.live)[0]

    def quantized(self, scale: Array, rounded: Rounded) -> QuantizedWeight:
        """The weight at `scale` (O,), rounded and saturated."""
        given, zero_points = self.at(scale)
        return QuantizedWeight(rounded(given), scale, np.broadcast_to(zero_points, self.factors.shape), self.factors)

    def at(self, scale: Array) -> tuple[UnroundedWeight, Array]:
        """The weight at `scale` (O,), and its zero points, (O or 1, I or 1)."""
        rank, steps = self.weight.ndim, scale[:, None] * _distinct(self.factors)
        lo, hi = -largest(self.config.bits), largest(self.config.bits)
        zero_points = np.zeros((1, 1), np.int64)
        if self.config.quantizer == "affine":
            lo, hi = -(1 << (self.config.bits - 1)), (1 << (self.config.bits - 1)) - 1
            zero_points = np.clip(np.rint(lo - _distinct(self.lo) / steps), lo, hi).astype(np.int64)
        whole = np.broadcast_to(zero_points, steps.shape)
        return UnroundedWeight(self.weight, spread(steps, rank), spread(whole, rank), lo, hi), zero_points


def _draft(weight: Array, config: WeightConfig, ends: list[int]) -> _Draft:
    """The scale that the range alone asks for, with the factors of the groups of input channels."""
    outputs, inputs = weight.shape[:2]
    lengths = np.diff([0, *ends])
    if len(ends) == 1:
        values = weight.reshape(outputs, 1, -1)
        least, most = values.min(axis=2, initial=0.0), values.max(axis=2, initial=0.0)
    else:
        values, starts = weight.reshape(outputs, inputs, -1), [0, *ends[:-1]]
        least = np.minimum.reduceat(values.min(axis=2, initial=0.0), starts, axis=1)
        most = np.maximum.reduceat(values.max(axis=2, initial=0.0), starts, axis=1)
    lo, hi = least.astype(np.float64), most.astype(np.float64)
    if config.scales == "layer":
        lo, hi = (np.broadcast_to(end, lo.shape) for end in (lo.min(axis=0), hi.max(axis=0)))
    if config.quantizer == "affine":
        wanted = (hi - lo) / ((1 << config.bits) - 1)
    else:
        wanted = np.maximum(hi, -lo) / largest(config.bits)
    scale, factors = _common(wanted)
    return _Draft(weight, config, scale, _along(lo, lengths), _along(factors, lengths))


def _common(wanted: Array) -> tuple[Array, Array]:
    """For each output channel a scale, and integer factors for the scales `wanted` (O, groups) of its groups."""
    if wanted.shape[1] == 1:
        return wanted[:, 0].copy(), np.ones(wanted.shape, np.int64)
    scale, factors = np.zeros(len(wanted)), np.ones(wanted.shape, np.int64)
    for channel, row in enumerate(wanted):
        live = row > 0
        if live.any():
            scale[channel], factors[channel, live] = integer_factors(row[live], FACTOR_BITS)
    return scale, factors


def with_correction_room(bound: Any) -> Any:
    """`bound` (non-negative, an int or an array of ints) and what a correction of the bias may add to it.

    The multipliers that a weight's scale absorbs are chosen for this bound, which does not depend on the correction:
    the same weights serve every correction.
    """
    return bound + -(-bound // CORRECTION_SHARE)


def _absorbing_scale(scale: Array, accumulator: Accumulator, target: Array, sums: Array) -> Array:
    """The scales at or above these whose factors to the target are exact multipliers. sums: the |accumulators| then."""
    step = accumulator.step
    bound = sums + np.ceil(accumulator.offset(len(scale)) / (step * scale)).astype(np.int64) + 1
    if bool((step * scale / target == (step * scale / target).flat[0]).all()):
        bound = np.full_like(bound, bound.max())
    pre_shift = pre_shift_for(int(bound.max()))
    wanted = step * scale / target * 2.0**pre_shift
    return absorbable_ratio(wanted, frac_limit(bound, pre_shift)) * 2.0**-pre_shift * target / step
