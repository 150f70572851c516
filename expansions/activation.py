"""relu, clip, limits to one side, and LeakyReLU."""

from __future__ import annotations

import math

import numpy as np

from expansions.addition import GUARD_BITS
from expansions.multiplication import scaled
from expansions.table import expand_table, table_reach
from mrt.errors import QuantizationError
from mrt.quantization.builder import IntegerBuilder
from mrt.quantization.expansion import Demand, Inputs, all_inputs, expansion
from mrt.quantization.plan import UNLIMITED, ScalePlan
from mrt.quantization.quantized import Quantized
from mrt.quantization.quantizer import Target, round_half_away
from mrt.symbol import Array, Graph, Operator, Symbol
from mrt.symbol.operators.activation import Clip, LeakyReLU, Relu, per_channel
from mrt.symbol.operators.elementwise import ElemwiseSub
from mrt.symbol.operators.functions import Negative
from mrt.symbol.operators.selection import BroadcastMaximum, BroadcastMinimum, MaximumScalar, MinimumScalar


@expansion("relu", demands=Demand.WIDE)
def expand_relu(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Ye = max(0, Xq - zx) at sx: relu of "MRT Generalized Quantization Math Formalization". Exact at any scale."""
    data = builder.centred(inputs.quantized(0))
    if builder.bounds(data.symbol).min >= 0:
        return data
    return builder.quantized(builder.apply(Relu(), [data.symbol]), data.scale)


@expansion("clip", "_maximum_scalar", "_minimum_scalar", demands=Demand.OUTPUT)
def expand_clip(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """The input at the output's quantizer, saturated at round(limit / s) + z, in channel groups at each one's."""
    data = inputs.quantized(0)
    steps = [np.clip(limit / data.scale, -(2.0**31), 2.0**31) for limit in _limits(op)]
    least, most = (round_half_away(limit) + data.zero_points for limit in steps)
    symbol, bounds = data.symbol, builder.bounds(data.symbol)
    if data.groups is None:
        if least.item() <= bounds.min and bounds.max <= most.item():
            return data
        return builder.like(builder.narrow(symbol, least.item(), most.item()), data)
    lo, hi = int(bounds.min), int(bounds.max)
    if (least > lo).any():
        symbol = _compared(BroadcastMaximum(), symbol, np.clip(least, lo, hi), builder)
    if (most < hi).any():
        symbol = _compared(BroadcastMinimum(), symbol, np.clip(most, lo, hi), builder)
    return builder.like(builder.narrow(symbol, lo, hi), data)


def _limits(op: Symbol) -> tuple[float, float]:
    """The range to which the operator holds its input."""
    operator = op.operator
    if isinstance(operator, Clip):
        return operator.a_min, operator.a_max
    if isinstance(operator, MaximumScalar):
        return operator.scalar, np.inf
    if isinstance(operator, MinimumScalar):
        return -np.inf, operator.scalar
    raise QuantizationError(f"{op.name} ({op.op}): a clip, _maximum_scalar or _minimum_scalar is needed")


def _compared(operator: Operator, symbol: Symbol, limits: Array, builder: IntegerBuilder) -> Symbol:
    """`symbol` against one limit a channel, both in int32 since the operator takes one dtype."""
    constant = builder.constant(f"{symbol.name}_{operator.op}_limit", limits)
    return builder.apply(operator, [builder.cast(symbol, "int32"), builder.cast(constant, "int32")], "_clip")


def _leaky_demands(symbol: Symbol, graph: Graph) -> tuple[Demand, ...]:
    curved = isinstance(symbol.operator, LeakyReLU) and not symbol.operator.is_linear
    return all_inputs(Demand.CHANNELS if curved else Demand.WIDE)(symbol, graph)


@expansion("LeakyReLU", demands=_leaky_demands, guard_bits=GUARD_BITS, reach=table_reach)
def expand_leaky_relu(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """max(X, 0) - slope * max(-X, 0), both halves brought to the common scale s; a table for elu, selu and gelu.

    Ye = requantize(max(Xq - zx, 0), sx / s) - requantize(sign(slope) max(zx - Xq, 0), |slope| sx / s)

    with one slope, or (prelu) one a channel, of any sign and size: it is part of the scale, not rounded by itself.
    One of the halves is always 0, so that Ye is off by at most half a step of s, which is 4 bits finer than what reads
    it next, and by the rounding of the multipliers.
    Source: Quantize Scale of "MRT Generalized Quantization Math Formalization", for the two halves.
    """
    operator = op.operator
    if not isinstance(operator, LeakyReLU):
        raise QuantizationError(f"{op.name} ({op.op}): a LeakyReLU is needed")
    if not operator.is_linear:
        return expand_table(op, inputs, plan, builder)
    data = builder.centred(inputs.quantized(0))
    slope = _slope(op, operator, inputs)
    scale = plan.common[op.name]
    top = plan.common_target(op, op.inputs[0]).hi
    positive = builder.apply(Relu(), [data.symbol], "_positive")
    upper = builder.requantize(Quantized.of(positive, data.scale), Target(scale, 0, top, pinned=True))
    if not slope.any():
        return upper
    # Not max(x, 0) - x, whose terms are correlated: its bounds would be twice what it reaches.
    negative = builder.apply(Relu(), [builder.apply(Negative(), [data.symbol], "_opposite")], "_negative")
    below = scaled(Quantized.of(negative, data.scale), slope, f"{op.name}_slope", builder)
    reach = min(math.ceil(top * max(float(np.abs(slope).max()), 1.0)), UNLIMITED)
    lo, hi = -reach if (slope < 0).any() else 0, reach if (slope > 0).any() else 0
    lower = builder.requantize(below, Target(scale, lo, hi, pinned=True))
    return builder.quantized(builder.apply(ElemwiseSub(), [upper.symbol, lower.symbol]), scale)


def _slope(op: Symbol, operator: LeakyReLU, inputs: Inputs) -> Array:
    """The slope below 0, of the data's rank: one value, or one a channel."""
    rank = op.type.rank
    if operator.act_type == "leaky":
        return np.full((1,) * rank, operator.slope)
    return per_channel(inputs.parameter(1).astype(np.float64), rank)
