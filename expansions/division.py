"""Division of two tensors: one integer division of a widened numerator, both at 16 bits or less."""

from __future__ import annotations

import math

import numpy as np

from expansions.addition import GUARD_BITS
from mrt.quantization.demand import Demand
from mrt.quantization.expansion import Inputs, expansion
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.quantizer import SMALLEST_SCALE, Target
from mrt.quantization.tensor_plan import UNLIMITED, Plan, TensorPlan
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.activation import Clip
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastDiv, BroadcastMul
from mrt.symbol.operators.functions import Abs
from mrt.symbol.operators.integer import LeftShift
from mrt.symbol.operators.integer_math import FloorDivide
from mrt.symbol.types import INT32_MAX

SIGNED_TOP, UNSIGNED_TOP = 2**15 - 1, 2**16 - 1
"""The largest integers of an operand with and without a sign."""
EXACT_GUARD_BITS = 14
"""How many bits finer a quotient is that a quantizer of the network rounds, where 32 bits allow it."""


@expansion(BroadcastDiv, demands=Demand.WIDE, gain=lambda symbol, graph: 0.0)
def expand_broadcast_div(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Y = X / D of two tensors, one of which may be a constant.

    Ye = (x s k + floor(|d| / 2)) / |d| rounded down, at scale sx / (sd k),  s = 1 where d >= 0, else -1,

    x and d the centred integers, which are brought to 16 bits over the calibrated range where they have more; |d| is
    held to least or more, the calibrated smallest magnitude where the range does not hold 0, at least 1: a smaller
    divisor saturates. With N and M the largest |x| and |d|, k is what brings the scale to GUARD_BITS finer than what
    the quotient is rounded to next, and no more than (2^31 - 1 - floor(M / 2)) / N, so that the numerator fits. Ye is
    clipped to the calibrated range of Y.

    At the largest k the scale is (N sx) (M sd) / (2^31 M^2 sd^2), about 2^-31 M of the largest |X| over the largest
    |D|: 2^-15 or less of the largest |Y|, which is no less than that where both reach these, so that 16 bits of D never
    cost bits of Y. Error: half a step of Ye, and |Y| times half a step of d over |d|, beside that of x.
    """
    x = _operand(op, inputs, 0, plan, builder)
    d = _operand(op, inputs, 1, plan, builder)
    divisor, sign = _positive(op, d, plan, builder)
    magnitude, largest = (max(int(builder.bounds(part).magnitude), 1) for part in (x.symbol, divisor))
    fine = _finest(plan[op])
    most = (INT32_MAX - largest // 2) // magnitude
    factor = int(np.clip(math.ceil(min(x.step / d.step / fine, INT32_MAX)), 1, most))
    numerator = x.symbol if sign is None else builder.apply(BroadcastMul(), [x.symbol, sign], "_signed")
    if sign is not None:
        numerator = builder.clip_to(numerator, -magnitude, magnitude)
    one = (1,) * op.type.rank
    wide = builder.apply(
        BroadcastMul(), [numerator, builder.constant(f"{op.name}_factor", np.full(one, factor))], "_wide"
    )
    half = builder.apply(FloorDivide(), [divisor, builder.constant(f"{op.name}_two", np.full(one, 2))], "_half")
    quotient = builder.apply(FloorDivide(), [builder.apply(BroadcastAdd(), [wide, half], "_rounded"), divisor])
    scale = x.step / d.step / factor
    lo, hi = (end / scale for end in _ends(plan[op]))
    limits = max(math.floor(lo), -INT32_MAX), min(math.ceil(hi), INT32_MAX)
    return builder.quantized(builder.clip_to(quotient, *limits), scale)


def _operand(op: Symbol, inputs: Inputs, index: int, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """An operand, centred, at one scale, in 16 bits or less over the range that calibration saw."""
    value, planned = inputs.values[index], plan[op.inputs[index]]
    top = UNSIGNED_TOP if planned.never_negative else SIGNED_TOP
    scale = planned.magnitude / top
    scale = 1.0 if scale < SMALLEST_SCALE else scale
    target = Target(scale, 0 if planned.never_negative else -top, top)
    if not isinstance(value, Quantized):
        return builder.constant_at(op.inputs[index].name, _ranked(value, op.type.rank), target)
    if value.groups is not None:
        value = builder.at_one_scale(value)
    value = builder.centred(value)
    return value.uniform if value.is_uniform and _has_room(value, top, builder) else builder.requantize(value, target)


def _has_room(value: Quantized, top: int, builder: IntegerBuilder) -> bool:
    bounds = builder.bounds(value.symbol)
    return int(bounds.max) <= top and int(bounds.min) >= -top


def _ranked(value: Array, rank: int) -> Array:
    return value.reshape((1,) * (rank - value.ndim) + value.shape)


def _positive(op: Symbol, d: Quantized, plan: Plan, builder: IntegerBuilder) -> tuple[Symbol, Symbol | None]:
    """|d|, held to the calibrated smallest magnitude and at least 1, and its sign; None for a sign that is always 1."""
    planned = plan[op.inputs[1]]
    found, bounds = planned.range, builder.bounds(d.symbol)
    least = max(int(max(found.lo, -found.hi, 0.0) / d.step), 1)
    _note_zeros(op, d, plan, builder)
    if found.lo >= 0:
        return builder.clip_to(d.symbol, least, max(int(bounds.max), least)), None
    one = (1,) * d.symbol.type.rank
    if found.hi <= 0:
        minus_one = builder.constant(f"{op.name}_minus_one", np.full(one, -1))
        negative = builder.apply(BroadcastMul(), [d.symbol, minus_one], "_negative")
        return builder.clip_to(negative, least, max(int(builder.bounds(negative).max), least)), minus_one
    magnitude = builder.apply(Abs(), [d.symbol], "_magnitude")
    # 2 d + 1 is never 0, so that a divisor of 0 counts as positive.
    double = builder.apply(LeftShift(), [d.symbol, builder.constant(f"{op.name}_one", np.full(one, 1))], "_double")
    odd = builder.add_constant(double, f"{op.name}_one", np.full(one, 1), "_odd")
    sign = builder.apply(Clip(a_min=-1.0, a_max=1.0), [odd], "_sign")
    return builder.clip_to(magnitude, least, max(int(builder.bounds(magnitude).max), least)), sign


def _note_zeros(op: Symbol, d: Quantized, plan: Plan, builder: IntegerBuilder) -> None:
    found = plan[op.inputs[1]].range
    if found.lo < d.step and found.hi > -d.step:
        builder.notes.append(
            f"{op.name} ({op.op}): its divisor {op.inputs[1].name} was calibrated on [{found.lo:.3g}, {found.hi:.3g}], "
            f"which reaches 0; magnitudes below {d.step:.3g} count as that, and the quotient saturates at "
            f"{plan[op].magnitude:.3g}"
        )


def _finest(planned: TensorPlan) -> float:
    """The scale at which the quotient is formed, as far as 32 bits allow it."""
    read = planned.rounded_to
    finest = min(read.scale, planned.own.scale)
    return finest * 2.0 ** -(EXACT_GUARD_BITS if read.exact else GUARD_BITS)


def _ends(planned: TensorPlan) -> tuple[float, float]:
    """The real values at which the quotient saturates: where its own quantizer does, and the next one."""
    ends = [planned.own.real_range]
    if planned.next_target is not None and planned.next_target.hi < UNLIMITED:
        ends.append(planned.next_target.real_range)
    return min(lo for lo, _ in ends), max(hi for _, hi in ends)
