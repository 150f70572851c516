"""relu, clip and LeakyReLU."""

from __future__ import annotations

import math

import numpy as np

from expansions.addition import GUARD_BITS
from expansions.table import expand_table
from mrt.errors import QuantizationError
from mrt.quantization.builder import IntegerBuilder
from mrt.quantization.expansion import Demand, Inputs, all_inputs, expansion
from mrt.quantization.plan import ScalePlan
from mrt.quantization.quantized import Quantized
from mrt.quantization.quantizer import Target, round_half_away
from mrt.symbol import Graph, Symbol
from mrt.symbol.operators.activation import Clip, LeakyReLU, Relu
from mrt.symbol.operators.elementwise import ElemwiseSub


@expansion("relu", demands=Demand.WIDE)
def expand_relu(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Ye = max(0, Xq - zx) at sx: relu of "MRT Generalized Quantization Math Formalization". Exact at any scale."""
    data = builder.centred(inputs.quantized(0))
    if builder.bounds(data.symbol).min >= 0:
        return data
    return builder.quantized(builder.apply(Relu(), [data.symbol]), data.scale)


@expansion("clip", demands=Demand.OUTPUT)
def expand_clip(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """The input at the output's quantizer, saturated at round(a_min / s) + z and round(a_max / s) + z."""
    data = inputs.quantized(0)
    if not isinstance(op.operator, Clip):
        raise QuantizationError(f"{op.name} ({op.op}): a clip is needed")
    bounds = builder.bounds(data.symbol)
    limits = np.clip(np.array([op.operator.a_min, op.operator.a_max]) / data.step, -(2.0**31), 2.0**31)
    lo, hi = (int(limit) + data.zero_point for limit in round_half_away(limits))
    if lo <= bounds.min and bounds.max <= hi:
        return data
    return builder.quantized(builder.narrow(data.symbol, lo, hi), data.step, data.zero_point)


def _leaky_demands(symbol: Symbol, graph: Graph) -> tuple[Demand, ...]:
    curved = isinstance(symbol.operator, LeakyReLU) and not symbol.operator.is_linear
    return all_inputs(Demand.NARROW if curved else Demand.WIDE)(symbol, graph)


@expansion("LeakyReLU", demands=_leaky_demands, guard_bits=GUARD_BITS)
def expand_leaky_relu(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """max(X, 0) - slope * max(-X, 0), both halves brought to the common scale; a table for elu, selu and gelu."""
    operator = op.operator
    if isinstance(operator, LeakyReLU) and not operator.is_linear:
        return expand_table(op, inputs, plan, builder)
    data = builder.centred(inputs.quantized(0))
    if not isinstance(operator, LeakyReLU) or operator.act_type != "leaky" or operator.slope < 0:
        raise QuantizationError(
            f"{op.name} ({op.op}): only act_type leaky with a slope of 0 or more has an integer form"
        )
    scale = plan.common[op.name]
    top = plan.common_target(op, op.inputs[0]).hi
    positive = builder.apply(Relu(), [data.symbol], "_positive")
    upper = builder.requantize(Quantized.of(positive, data.scale), Target(scale, 0, top, pinned=True))
    if operator.slope == 0:
        return upper
    negative = builder.apply(ElemwiseSub(), [positive, data.symbol], "_negative")
    reach = math.ceil(top * max(operator.slope, 1.0))
    lower = builder.requantize(
        Quantized.of(negative, data.scale * operator.slope), Target(scale, 0, reach, pinned=True)
    )
    return builder.quantized(builder.apply(ElemwiseSub(), [upper.symbol, lower.symbol]), scale)
