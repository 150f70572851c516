"""Sums that a quantizer of the network rounds: of tensors of any scales and a constant, with no rounding before."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mrt.errors import QuantizationError
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.tensor_plan import UNLIMITED, Plan
from mrt.symbol import Array, Symbol
from mrt.symbol.types import INT32_MAX

Term = tuple[Quantized, float]
"""A tensor and the factor that it is multiplied by."""


def exact_sum(op: Symbol, terms: Sequence[Term], constant: Array, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """sum_i a_i X_i + C for a quantizer of the network, of steps t.

    Ye = round(2^n (sum_i Xq_i a_i s_i / t + C / t - sum_i z_i a_i s_i / t)) at t 2^-n, n as large as 32 bits allow:
    21 where the sum of two 8-bit tensors reaches 512 steps, and then off by 2^-20 at most, as `WeightedSum` states it.
    A tensor is clipped to where all that reads the sum saturates, whatever the others are, and so is the constant.
    Source: Quantize Scale of "MRT Generalized Quantization Math Formalization", with one shift for all.
    """
    ranges = [_real_range(value, factor, builder) for value, factor in terms]
    lo, hi = plan[op].saturates
    data_lo, data_hi = sum(least for least, _ in ranges), sum(most for _, most in ranges)
    constant = np.clip(constant, lo - data_hi, hi - data_lo)
    least, most = data_lo + float(constant.min(initial=0.0)), data_hi + float(constant.max(initial=0.0))
    steps = _steps(op, max(abs(least), abs(most)), plan)
    offset, parts = constant / steps, []
    for (value, factor), (own_lo, own_hi) in zip(terms, ranges, strict=True):
        added, ratio = _known_apart(value, factor * value.scale / steps, builder)
        offset = offset + added
        held = _integers(value, factor, lo - (most - own_hi), hi - (least - own_lo))
        parts.append((builder.held(value.symbol, ratio, *held), ratio))
    total, shift = builder.weighted_sum(parts, offset, one_shift=True, suffix="")
    return builder.quantized(total, np.ldexp(steps, -shift))


def _known_apart(value: Quantized, ratio: Array, builder: IntegerBuilder) -> tuple[Array, Array]:
    """What a tensor adds to the constant, and its factors: 0 where its bounds leave one value, as of a pruned channel.

    So a scale that has no meaning there costs no bits.
    """
    bounds = builder.bounds(value.symbol).reduced([axis for axis, length in enumerate(ratio.shape) if length > 1])
    is_known = bounds.lo == bounds.hi
    return (np.where(is_known, bounds.lo, 0) - value.zero_points) * ratio, np.where(is_known, 0.0, ratio)


def _real_range(value: Quantized, factor: float, builder: IntegerBuilder) -> tuple[float, float]:
    """The least and the greatest of a tensor times a factor, as its bounds prove them."""
    varying = np.broadcast_shapes(value.scale.shape, value.zero_points.shape)
    bounds = builder.bounds(value.symbol).reduced([axis for axis, length in enumerate(varying) if length > 1])
    ends = [factor * value.scale * (end.astype(np.float64) - value.zero_points) for end in (bounds.lo, bounds.hi)]
    return float(np.minimum(*ends).min()), float(np.maximum(*ends).max())


def _integers(value: Quantized, factor: float, lo: float, hi: float) -> tuple[int, int]:
    """The integers at or beyond which a tensor times a factor leaves [lo, hi], in every channel."""
    ends = [np.clip(end / (factor * value.scale) + value.zero_points, -INT32_MAX, INT32_MAX) for end in (lo, hi)]
    return int(np.floor(np.minimum(*ends).min())) - 1, int(np.ceil(np.maximum(*ends).max())) + 1


def _steps(op: Symbol, magnitude: float, plan: Plan) -> Array:
    """The steps of the quantizer behind a sum, of its rank; coarser by a power of two where the sum would not fit."""
    quantizer = plan[op].next_target
    if quantizer is None:
        raise QuantizationError(f"{op.name} ({op.op}): no quantizer of the network rounds it")
    steps = quantizer.scales(op.shape)
    if quantizer.groups is not None and steps.size != op.shape[quantizer.groups.axis]:
        steps = steps.min().reshape((1,) * op.type.rank)
    over = math.ceil(math.log2(max(magnitude / float(steps.min()) / UNLIMITED, 1.0)))
    result: Array = np.ldexp(steps, over)
    return result
