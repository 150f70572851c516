"""softmax: a table of powers and one integer division."""

from __future__ import annotations

import math

import numpy as np

from mrt.errors import QuantizationError
from mrt.quantization.builder import IntegerBuilder
from mrt.quantization.expansion import Inputs, expansion
from mrt.quantization.plan import ScalePlan
from mrt.quantization.quantized import Quantized
from mrt.quantization.quantizer import round_half_away
from mrt.symbol import Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul, BroadcastSub
from mrt.symbol.operators.integer_math import FloorDivide
from mrt.symbol.operators.normalization import Softmax
from mrt.symbol.operators.reduce import Max, Sum
from mrt.symbol.operators.table import MAX_ENTRIES, TableLookup
from mrt.symbol.types import INT32_MAX

LEAST_TOP, MOST_TOP = 2**4 - 1, 2**16 - 1
"""The largest output integer, which stands for probability 1, lies between these."""


@expansion("softmax")
def expand_softmax(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
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
    data, operator = inputs.quantized(0), op.operator
    if not isinstance(operator, Softmax):
        raise QuantizationError(f"{op.name} ({op.op}): a softmax is needed")
    axis = operator.axis % op.type.rank
    classes = op.shape[axis]
    top = _top(op, plan)
    unit = min((INT32_MAX - 1) // (top + (classes + 1) // 2), INT32_MAX // classes)
    if unit < 1:
        raise QuantizationError(
            f"{op.name} ({op.op}): {classes} classes do not fit 32 bits; cut it off with prepare.split"
        )
    highest = builder.apply(Max(axis=(axis,), keepdims=True), [data.symbol], "_highest")
    distance = builder.apply(BroadcastSub(), [data.symbol, highest], "_distance")
    step = data.step / (operator.temperature or 1.0)
    vanishes = math.ceil(min(math.log(2.0 * unit) / step, INT32_MAX))
    reach = min(int(builder.bounds(distance).magnitude), vanishes)
    if reach >= MAX_ENTRIES:
        raise QuantizationError(
            f"{op.name} ({op.op}): its table needs {reach + 1} entries, {MAX_ENTRIES} are allowed; lower "
            f"activation.bits for {op.inputs[0].name}"
        )
    # The largest element is at distance 0; to intervals it might be farther away.
    distance = builder.narrow(distance, -reach, 0)
    entries = round_half_away(unit * np.exp(step * np.arange(-reach, 1, dtype=np.float64)))
    table = builder.constant(f"{op.name}_powers", entries)
    power = builder.apply(TableLookup(offset=reach), [distance, table], "_power")
    total = builder.apply(Sum(axis=(axis,), keepdims=True), [power], "_total")
    total = builder.narrow_range(total, unit, INT32_MAX)
    one = (1,) * op.type.rank
    half = builder.apply(FloorDivide(), [total, builder.constant(f"{op.name}_two", np.full(one, 2))], "_half")
    scaled = builder.apply(BroadcastMul(), [power, builder.constant(f"{op.name}_top", np.full(one, top))], "_scaled")
    rounded = builder.apply(BroadcastAdd(), [scaled, half], "_rounded")
    share = builder.apply(FloorDivide(), [rounded, total])
    return builder.quantized(builder.narrow(share, 0, _limit(op, plan, top)), 1.0 / top)


def _top(op: Symbol, plan: ScalePlan) -> int:
    """The integer that stands for 1: the inverse of the output's scale."""
    target = plan.meets[op.name] or plan.own[op.name]
    finest = min(target.scale, plan.own[op.name].scale)
    return int(np.clip(round(1.0 / finest), LEAST_TOP, MOST_TOP))


def _limit(op: Symbol, plan: ScalePlan, top: int) -> int:
    """Where the output saturates: at the calibrated range, but not where it is all of [0, 1]."""
    return min(top, round(plan.magnitudes[op.name] * top))
