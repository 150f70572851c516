"""LayerNorm, InstanceNorm and L2Normalization: an integer square root and one integer division."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from expansions.addition import GUARD_BITS
from mrt.quantization.expansion import Inputs, expansion
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.integer.requantize import shifted_magnitude
from mrt.quantization.quantizer import quantize_parameter, round_half_away
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul, BroadcastSub
from mrt.symbol.operators.instance_normalization import InstanceNorm, L2Normalization
from mrt.symbol.operators.integer import RightShift
from mrt.symbol.operators.integer_math import MAX_FRACTION_BITS, FloorDivide, IntegerSqrt
from mrt.symbol.operators.normalization import LayerNorm
from mrt.symbol.operators.reduce import Sum
from mrt.symbol.types import INT32_MAX

CENTRE_LIMIT = 2**30 - 1
"""|C X| and |sum of X| stay at or below this, so that their difference fits 32 bits."""
STEP = 2.0**-13
"""The quotients are at least as fine as this, in standard deviations or lengths, where 32 bits allow it; finer by what
they fall short of 1 where eps is large."""
AFFINE_LIMIT = 2**30
"""|quotient * gamma| plus |beta| stays at or below this."""
GAMMA_TOP, LEAST_GAMMA_TOP = 2**14 - 1, 2**7 - 1
"""The largest integer of gamma lies between these; the quotient is shifted right where there is no room for it."""
BETA_LIMIT = 2.0**22
"""|beta| is at most this many steps of the quotient where gamma has its largest value; beside a larger beta gamma loses
bits instead."""


@expansion(LayerNorm, why_one_scale="adds up elements and their squares")
def expand_layer_norm(op: Symbol[LayerNorm], inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Y = gamma (X - mean) / sqrt(variance + eps) + beta over an axis of C elements.

    c = C Xq - sum(Xq),  X - mean = sx c / C,  variance = sx^2 sum(c^2) / C^3,
    (X - mean) / sqrt(variance + eps) = sqrt(C) c / sqrt(sum(c^2) + eps C^3 / sx^2).

    A zero point cancels in c. Where |C Xq| would reach 2^30 Xq is shifted right first. The quotient N at scale sn is
    `normalized`'s; then Ye = N round(gamma / sg) + round(beta / (sn sg)) at sn sg, gamma in up to 15 bits.

    Error of (X - mean) / sqrt(variance + eps), whose value is n, for the integers that are given:

        2^-13 + |n| (2^-12 + sqrt(C) 2^-15 (highest - lowest) / deviation)

    with the range of the whole tensor and the standard deviation of the elements that are normalised together (with
    eps in it). It comes from the integers' width, not from the steps of X, which the deviation may be a few of.
    """
    axis = op.operator.axis % op.type.rank
    return _of_moments(op, inputs, (axis,), axis, op.operator.eps, plan, builder)


@expansion(InstanceNorm, why_one_scale="takes the roots of all channels' squares at one scale")
def expand_instance_norm(op: Symbol[InstanceNorm], inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """LayerNorm over the axes after the channels, with gamma and beta for each channel."""
    return _of_moments(op, inputs, tuple(range(2, op.type.rank)), 1, op.operator.eps, plan, builder)


@expansion(L2Normalization, why_one_scale="adds up squares")
def expand_l2_normalization(
    op: Symbol[L2Normalization], inputs: Inputs, plan: Plan, builder: IntegerBuilder
) -> Quantized:
    """Y = X / sqrt(sum(X^2) + eps) = Xq / sqrt(sum(Xq^2) + eps / sx^2); the quotient is `normalized`'s."""
    data = builder.centred(inputs.quantized(0))
    axes = op.operator.axes(op.type.rank)
    constant = op.operator.eps / data.step / data.step
    without_squares = data.step / math.sqrt(op.operator.eps or 1.0)
    result = normalized(op, data.symbol, axes, constant, 1.0, without_squares, builder)
    return _guarded(op, result, plan, builder)


def _of_moments(
    op: Symbol,
    inputs: Inputs,
    axes: tuple[int, ...],
    channel_axis: int,
    eps: float,
    plan: Plan,
    builder: IntegerBuilder,
) -> Quantized:
    data, gamma, beta = inputs.quantized(0), inputs.parameter(1), inputs.parameter(2)
    count = math.prod(op.shape[axis] for axis in axes)
    symbol, step = data.symbol, data.step
    magnitude = int(builder.bounds(symbol).magnitude)
    shift = next(by for by in range(32) if shifted_magnitude(magnitude, by) * count <= CENTRE_LIMIT or by == 31)
    if shift:
        symbol, step = _shifted(symbol, shift, "_coarse", op, builder), step * 2.0**shift
    spread = int(builder.bounds(symbol).max - builder.bounds(symbol).min)
    total = builder.apply(Sum(axis=axes, keepdims=True), [symbol], "_total")
    factor = builder.constant(f"{op.name}_count", np.full((1,) * op.type.rank, count))
    centre = builder.apply(
        BroadcastSub(), [builder.apply(BroadcastMul(), [symbol, factor], "_times"), total], "_centre"
    )
    # To intervals the sum is independent of its terms; an element is at most the spread away from the mean.
    centre = builder.clip_to(centre, -spread * count, spread * count)
    constant = eps * count**3 / step / step
    result = normalized(op, centre, axes, constant, math.sqrt(count), step / count / math.sqrt(eps or 1.0), builder)
    return _guarded(op, _affine(op, result, gamma, beta, channel_axis, builder), plan, builder)


@dataclass(frozen=True)
class _Squares:
    """How sums of squares are made to fit: elements are shifted right by `element`, sums over the last of the axes by
    `partial` before they are added up; `constant` joins the result."""

    element: int
    partial: int
    constant: int


def normalized(
    op: Symbol,
    data: Symbol,
    axes: tuple[int, ...],
    constant: float,
    gain: float,
    without_squares: float,
    builder: IntegerBuilder,
) -> Quantized:
    """gain * d / sqrt(sum(d^2) + constant) over neighbouring `axes`, d the integers of `data`.

    V = (sum((d >> r)^2) + ...) >> u + round(constant / 2^(2r + u)),  s = max(floor(2^f sqrt(V)), 1),
    Ye = (d k + floor(s / 2)) / s rounded down, at gain 2^(f - r - u/2) / k,
    closed by a clip at |Ye| <= gain / scale + 1, which intervals do not know.

    r, then u, are the least for which the sum of squares stays within 31 bits: the sum over the last axis in full, then
    shifted by u, the others added. k is the largest for which the numerator fits. f, up to 12, gives the root as many
    fraction bits as leave the scale at STEP or finer. `constant` that is larger than 31 bits hold even after shifting
    every square away is all that counts: then Ye is d at the scale `without_squares`.

    Error: half a step of Ye, and a share of Ye that the root is off by: at most 1 / (2^f sqrt(V)) from its last bit
    and 2^(r - 1) sqrt(count) / sqrt(sum(d^2)) from the shifted elements.
    """
    magnitude = int(builder.bounds(data).magnitude)
    squares = _squares(op, magnitude, axes, constant)
    if squares is None:
        return builder.quantized(data, without_squares)
    variance = _sum_of_squares(op, data, axes, squares, builder)
    down = 2.0 ** -(squares.element + squares.partial / 2)
    most = math.sqrt(float(builder.bounds(variance).max))
    reach = min(1.0, gain * magnitude / math.sqrt(constant)) if constant else 1.0
    fraction_bits = _fraction_bits(magnitude, most, gain * down, STEP * reach)
    root = builder.apply(IntegerSqrt(fraction_bits=fraction_bits), [variance], "_root")
    root = builder.clip_to(root, 1, INT32_MAX)
    factor = _factor(magnitude, int(builder.bounds(root).max))
    quotient = _quotient(op, data, factor, root, builder)
    scale = gain * down * 2.0**fraction_bits / factor
    limit = math.ceil(gain / scale) + 1
    return builder.quantized(builder.clip_to(quotient, -limit, limit), scale)


def _quotient(op: Symbol, data: Symbol, factor: int, root: Symbol, builder: IntegerBuilder) -> Symbol:
    """(d factor + floor(root / 2)) / root rounded down, d the integers of `data`."""
    one = (1,) * op.type.rank
    half = builder.apply(FloorDivide(), [root, builder.constant(f"{op.name}_two", np.full(one, 2))], "_half")
    scaled = builder.apply(BroadcastMul(), [data, builder.constant(f"{op.name}_factor", np.full(one, factor))], "_wide")
    rounded = builder.apply(BroadcastAdd(), [scaled, half], "_rounded")
    return builder.apply(FloorDivide(), [rounded, root], "_quotient")


def _squares(op: Symbol, magnitude: int, axes: tuple[int, ...], constant: float) -> _Squares | None:
    last = op.shape[axes[-1]]
    rest = math.prod(op.shape[axis] for axis in axes[:-1])
    for element, partial in itertools.product(range(31), range((rest - 1).bit_length() + 1)):
        largest = (magnitude >> element) + 1 if element else magnitude
        sums = last * largest**2
        sums_shifted = (sums >> partial) + 1 if partial else sums
        addend = constant / 4.0**element / 2.0**partial
        if sums <= INT32_MAX - 2**partial and rest * sums_shifted + addend <= INT32_MAX - 1:
            return _Squares(element, partial, round(addend))
    return None


def _sum_of_squares(
    op: Symbol, data: Symbol, axes: tuple[int, ...], squares: _Squares, builder: IntegerBuilder
) -> Symbol:
    element = _shifted(data, squares.element, "_short", op, builder)
    square = builder.apply(BroadcastMul(), [element, element], "_square")
    # To intervals the two factors are independent, so that their product might be negative.
    square = builder.clip_to(square, 0, INT32_MAX)
    total = builder.apply(Sum(axis=axes[-1:], keepdims=True), [square], "_squares")
    total = _shifted(total, squares.partial, "_partial", op, builder)
    if len(axes) > 1:
        total = builder.apply(Sum(axis=axes[:-1], keepdims=True), [total], "_squares")
    if not squares.constant:
        return total
    eps = np.full((1,) * op.type.rank, squares.constant)
    return builder.apply(BroadcastAdd(), [total, builder.constant(f"{op.name}_eps", eps)], "_variance")


def _fraction_bits(magnitude: int, root: float, gain: float, step: float) -> int:
    """The most fraction bits of the root, at most 12, that leave a scale of `step` or less."""
    best = 0
    for bits in range(1, MAX_FRACTION_BITS + 1):
        if gain * 2.0**bits / _factor(magnitude, int(root * 2.0**bits) + 1) <= step:
            best = bits
    return best


def _factor(magnitude: int, root: int) -> int:
    """The largest factor of the numerator beside half a root."""
    return max((INT32_MAX - 1 - root) // max(magnitude, 1), 1)


def _affine(
    op: Symbol, value: Quantized, gamma: Array, beta: Array, channel_axis: int, builder: IntegerBuilder
) -> Quantized:
    """gamma * value + beta, both along `channel_axis`, integers at one scale for all channels."""
    shape = [1] * op.type.rank
    shape[channel_axis] = -1
    gamma, beta = gamma.astype(np.float64), beta.astype(np.float64)
    if (gamma == 1).all() and not beta.any():
        return value
    offset = float(np.abs(beta).max())
    symbol, step, top = value.symbol, value.step, 0
    unit = max(float(np.abs(gamma).max()), offset / (step * BETA_LIMIT)) or 1.0
    for _ in range(32):
        room = builder.bounds(symbol).magnitude + offset / (step * unit)
        top = int(min(AFFINE_LIMIT / max(room, 1.0), GAMMA_TOP))
        if top >= LEAST_GAMMA_TOP:
            break
        symbol, step = _shifted(symbol, 1, "_coarser", op, builder), step * 2
    integers = quantize_parameter(gamma, unit / top, top).reshape(shape)
    symbol = builder.apply(BroadcastMul(), [symbol, builder.constant(op.inputs[1].name, integers)], "_gamma")
    scale = step * unit / top
    constant = round_half_away(beta / scale).reshape(shape)
    if constant.any():
        symbol = builder.add_constant(symbol, op.inputs[2].name, constant, "_beta")
    return builder.quantized(symbol, scale)


def _guarded(op: Symbol, value: Quantized, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """`value` shifted right to a few bits finer than what it is rounded to next, which leaves room for a multiplier."""
    target = plan[op].rounded_to
    shift = math.floor(math.log2(target.scale / value.step)) - GUARD_BITS
    if shift <= 0:
        return value
    shift = min(shift, 31)
    return builder.quantized(_shifted(value.symbol, shift, "_guarded", op, builder), value.scale * 2.0**shift)


def _shifted(symbol: Symbol, shift: int, suffix: str, op: Symbol, builder: IntegerBuilder) -> Symbol:
    if not shift:
        return symbol
    amount = builder.constant(f"{op.name}{suffix}_by", np.full((1,) * op.type.rank, shift))
    return builder.apply(RightShift(), [symbol, amount], suffix)
