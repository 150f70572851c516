"""softmax and its logarithm: a table of powers, and one integer division or a table of logarithms."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from expansions.addition import GUARD_BITS
from mrt.errors import QuantizationError
from mrt.quantization.expansion import Inputs, expansion
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.integer.requantize import shifted_magnitude
from mrt.quantization.quantizer import Target, round_half_away
from mrt.quantization.remedies import cut_off
from mrt.quantization.tensor_plan import UNLIMITED, Plan
from mrt.symbol import Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul, BroadcastSub
from mrt.symbol.operators.integer import RightShift
from mrt.symbol.operators.integer_math import FloorDivide
from mrt.symbol.operators.normalization import LogSoftmax, Softmax
from mrt.symbol.operators.reduce import Max, Sum
from mrt.symbol.operators.table import MAX_ENTRIES, TableLookup
from mrt.symbol.types import INT32_MAX

LEAST_TOP, MOST_TOP = 2**4 - 1, 2**16 - 1
"""The largest output integer, which stands for probability 1, lies between these."""
MOST_LOG_CLASSES = 2**14
"""The most elements of which a logarithm of the sum is taken: the table tells it to 1/5 then."""


@expansion(Softmax, why_one_scale="compares elements and adds up their powers")
def expand_softmax(op: Symbol[Softmax], inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Y = exp(X / t) / sum(exp(X / t)) along an axis of N elements, t the temperature.

    D = Xq - max(Xq),  E = table[D],  table[d] = round(e exp(sx d / t)),  S = sum(E),
    Ye = (E top + floor(S / 2)) / S rounded down, at scale 1 / top.

    A zero point cancels in D. The table begins where the power rounds to 0, below which D is clipped, and has at most
    65,536 entries. e = table[0] is the largest that keeps within 32 bits both S <= N e and E top + S / 2; S >= e,
    since the largest element has D = 0. 1 / top is the scale of the output's own quantizer, or what it meets next, and
    Ye is clipped at what the former holds: at least at top, since E <= S is not known to intervals.

    Error against the softmax of the integers that are given: at most 1 / (2 top) from the last rounding and
    (1 + N) / (2 e) from the powers', e being about 2^31 / (top + N / 2).
    """
    operator = op.operator
    classes = op.shape[operator.axis]
    top = _top(op, plan)
    unit = min((INT32_MAX - 1) // (top + (classes + 1) // 2), INT32_MAX // classes)
    if unit < 1:
        raise QuantizationError(f"{op.name} ({op.op}): {classes} classes do not fit 32 bits; {cut_off(op)}")
    sums = _power_sums(op, operator.axis, operator.temperature, inputs.quantized(0), unit, builder)
    power, total = sums.power, sums.total
    one = (1,) * op.type.rank
    half = builder.apply(FloorDivide(), [total, builder.constant(f"{op.name}_two", np.full(one, 2))], "_half")
    scaled = builder.apply(BroadcastMul(), [power, builder.constant(f"{op.name}_top", np.full(one, top))], "_scaled")
    rounded = builder.apply(BroadcastAdd(), [scaled, half], "_rounded")
    share = builder.apply(FloorDivide(), [rounded, total])
    return builder.quantized(builder.narrow(share, 0, _limit(op, plan, top)), 1.0 / top)


@expansion(LogSoftmax, guard_bits=GUARD_BITS, why_one_scale="compares elements and adds up their powers")
def expand_log_softmax(op: Symbol[LogSoftmax], inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """X / t - log(sum(exp(X / t))) along an axis of N elements, t the temperature, at the common scale s.

    Ye = requantize(D, sx / (t s)) - logs[S >> r],  logs[i] = round(log(2^r i / e) / s),

    with D, S and e as in softmax, e = (2^31 - 1) / N, and r the least shift after which S is one of 65,536 integers.

    Error against the log_softmax of the integers that are given: at most s / 2 for each of the two terms, the rounding
    of the multiplier, and -log(1 - N / 2^17 - N^2 / 2^32) from the roundings of S and of the powers, S being e or
    more: 0.008 for 1,000 classes. More than 16,384 are refused.
    """
    operator = op.operator
    classes = op.shape[operator.axis]
    if classes > MOST_LOG_CLASSES:
        raise QuantizationError(
            f"{op.name} ({op.op}): it has {classes} classes, {MOST_LOG_CLASSES} are allowed; {cut_off(op)}"
        )
    unit = INT32_MAX // classes
    sums = _power_sums(op, operator.axis, operator.temperature, inputs.quantized(0), unit, builder)
    total = builder.clip_to(sums.total, unit, unit * classes)
    shift = next(
        by for by in range(32) if shifted_magnitude(unit * classes, by) - shifted_magnitude(unit, by) < MAX_ENTRIES
    )
    by = builder.constant(f"{op.name}_shift", np.full((1,) * op.type.rank, shift))
    short = builder.apply(RightShift(), [total, by], "_short")
    least, most = (int(bound) for bound in (builder.bounds(short).min, builder.bounds(short).max))
    scale = plan[op].common_scale
    reals = np.log(np.maximum(np.arange(least, most + 1) * (2.0**shift / unit), 1.0))
    table = builder.constant(f"{op.name}_logs", round_half_away(reals / scale))
    logs = builder.apply(TableLookup(offset=-least), [short, table], "_log")
    lowest = math.ceil(min(builder.bounds(sums.distance).magnitude * sums.step / scale, UNLIMITED))
    target = Target(scale, -max(lowest, 1), 0, pinned=True)
    distance = builder.requantize(Quantized.of(sums.distance, sums.step), target)
    return builder.quantized(builder.apply(BroadcastSub(), [distance.symbol, logs]), scale)


@dataclass(frozen=True)
class _PowerSums:
    """distance: Xq - max(Xq), in steps of sx / t. power: e times its exponential. total: their sum, e or more."""

    distance: Symbol
    step: float
    power: Symbol
    total: Symbol


def _power_sums(
    op: Symbol, axis: int, temperature: float | None, data: Quantized, unit: int, builder: IntegerBuilder
) -> _PowerSums:
    """The powers along an axis, `unit` standing for 1."""
    axis %= op.type.rank
    highest = builder.apply(Max(axis=(axis,), keepdims=True), [data.symbol], "_highest")
    distance = builder.apply(BroadcastSub(), [data.symbol, highest], "_distance")
    step = data.step / (temperature or 1.0)
    vanishes = math.ceil(min(math.log(2.0 * unit) / step, INT32_MAX))
    reach = min(int(builder.bounds(distance).magnitude), vanishes)
    if reach >= MAX_ENTRIES:
        raise QuantizationError(
            f"{op.name} ({op.op}): its table needs {reach + 1} entries, {MAX_ENTRIES} are allowed; lower "
            f"activation.bits for {op.inputs[0].name}"
        )
    # The largest element is at distance 0; to intervals it might be farther away.
    held = builder.narrow(distance, -reach, 0)
    entries = round_half_away(unit * np.exp(step * np.arange(-reach, 1, dtype=np.float64)))
    table = builder.constant(f"{op.name}_powers", entries)
    power = builder.apply(TableLookup(offset=reach), [held, table], "_power")
    total = builder.apply(Sum(axis=(axis,), keepdims=True), [power], "_total")
    return _PowerSums(distance, step, power, builder.clip_to(total, unit, INT32_MAX))


def _top(op: Symbol, plan: Plan) -> int:
    """The integer that stands for 1: the inverse of the output's scale."""
    target = plan[op].rounded_to
    finest = min(target.scale, plan[op].own.scale)
    return int(np.clip(round(1.0 / finest), LEAST_TOP, MOST_TOP))


def _limit(op: Symbol, plan: Plan, top: int) -> int:
    """Where the output saturates: at the calibrated range, but not where it is all of [0, 1], nor before a quantizer of
    the network, which saturates where the network says.
    """
    read = plan[op].next_target
    if read is not None and read.exact:
        return top
    return min(top, round(plan[op].magnitude * top))
