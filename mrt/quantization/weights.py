"""Quantizing the weight of a reduction so that its requantization is exact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mrt.quantization.options import WeightConfig
from mrt.quantization.quantizer import Target, largest, round_half_away
from mrt.quantization.requantize import absorbable_ratio, frac_limit, pre_shift_for
from mrt.symbol import Array

BIAS_BITS = 22
"""A bias takes at most this many bits of the accumulator; where it would take more, the weight's scale rises."""
LEAST_RATIO = 2.0**-16
"""The smallest factor from accumulator to target: below it a 15-bit multiplier would need a shift beyond 31."""
ROUNDS = 8


@dataclass(frozen=True, eq=False)
class QuantizedWeight:
    """W = scale * (integers - zero_point): integers int64, of the weight's shape; scale float64 and zero_point int64,
    (O,), one for each output channel."""

    integers: Array
    scale: Array
    zero_point: Array

    @property
    def centred(self) -> Array:
        """integers - zero_point, of the weight's shape."""
        return self.integers - per_channel(self.zero_point, self.integers.ndim)


def quantize_weight(
    weight: Array,
    step: float,
    config: WeightConfig,
    meets: Target | None,
    bias: Array | None,
    magnitudes: Callable[[Array], Array],
) -> QuantizedWeight:
    """Integers for a float `weight` (O, ...), and scale and zero point of each output channel.

    step: the scale of the data operand. meets: what the accumulator is rescaled to, if known. bias: (O,) float, what
    is added to the accumulator. magnitudes: from centred integers like the weight to the largest |accumulator| per
    channel.

    1. The scale spreads the channel's (or layer's) range over the integers: the largest |weight| is 2^(bits-1) - 1 if
       symmetric; if affine the range from the least to the greatest, widened to hold zero, takes all 2^bits.
    2. It rises where the bias, or the factor to the target, would not fit otherwise; an all-zero channel gets
       its scale from this alone.
    3. It rises to the nearest value whose factor to the target is exactly frac * 2^-shift, frac as wide as the
       accumulator's bound allows; then the weight is quantized and the bound is checked again.
    """
    channels = weight.shape[0]
    rows = weight.reshape(channels, -1).astype(np.float64)
    lo, hi = rows.min(axis=1, initial=0.0), rows.max(axis=1, initial=0.0)
    if config.scales == "layer":
        lo, hi = np.full(channels, lo.min()), np.full(channels, hi.max())
    offset = np.zeros(channels) if bias is None else np.abs(bias).astype(np.float64)
    floor = offset / (step * 2.0**BIAS_BITS)
    if meets is not None:
        floor = np.maximum(floor, LEAST_RATIO * meets.scale / step)
    if config.quantizer == "affine":
        scale = np.maximum((hi - lo) / ((1 << config.bits) - 1), floor)
    else:
        scale = np.maximum(np.maximum(hi, -lo) / largest(config.bits), floor)
    if config.scales == "layer":
        scale = np.full(channels, scale.max())
    scale[scale == 0] = scale.max() or 1.0
    if meets is None:
        return _quantize(weight, scale, lo, config)
    for _ in range(ROUNDS):
        quantized = _quantize(weight, scale, lo, config)
        exact = _absorbing(quantized, step, meets, offset, magnitudes)
        if np.allclose(exact, scale, rtol=1e-12, atol=0):
            break
        scale = exact
    return _quantize(weight, scale, lo, config)


def per_channel(values: Array, rank: int) -> Array:
    """(O,) as (O, 1, ...)."""
    return values.reshape(-1, *(1,) * (rank - 1))


def _absorbing(
    quantized: QuantizedWeight,
    step: float,
    meets: Target,
    offset: Array,
    magnitudes: Callable[[Array], Array],
) -> Array:
    """The scales at or above these whose factors to the target are exact multipliers."""
    scale = quantized.scale
    bound = magnitudes(quantized.centred) + np.ceil(offset / (step * scale)).astype(np.int64) + 1
    if bool((scale == scale[0]).all()):
        bound = np.full_like(bound, bound.max())
    pre_shift = pre_shift_for(int(bound.max()))
    wanted = step * scale / meets.scale * 2.0**pre_shift
    return absorbable_ratio(wanted, frac_limit(bound, pre_shift)) * 2.0**-pre_shift * meets.scale / step


def _quantize(weight: Array, scale: Array, lo: Array, config: WeightConfig) -> QuantizedWeight:
    """Rounded half away from zero and saturated; lo: the least weight of each channel, at most 0."""
    steps = round_half_away(weight / per_channel(scale, weight.ndim))
    if config.quantizer == "symmetric":
        top = largest(config.bits)
        return QuantizedWeight(np.clip(steps, -top, top), scale, np.zeros(len(scale), np.int64))
    lowest = -(1 << (config.bits - 1))
    highest = -lowest - 1
    zero_point = np.clip(np.rint(lowest - lo / scale), lowest, highest).astype(np.int64)
    integers = np.clip(steps + per_channel(zero_point, weight.ndim), lowest, highest)
    return QuantizedWeight(integers, scale, zero_point)
