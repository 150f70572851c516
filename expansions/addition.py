"""Addition and subtraction: operands brought to one scale, constants joined to the accumulator."""

from __future__ import annotations

import numpy as np

from mrt.quantization.builder import IntegerBuilder
from mrt.quantization.expansion import Demand, Inputs, all_inputs, expansion
from mrt.quantization.plan import ScalePlan
from mrt.quantization.quantized import Quantized
from mrt.quantization.quantizer import round_half_away
from mrt.symbol import Array, Graph, Symbol

GUARD_BITS = 4
"""Sums are formed this many bits finer than what they are rounded to next."""
LARGEST_CONSTANT = 2**29
"""In steps of the accumulator; a larger constant would leave the accumulator no room."""


def _demands(symbol: Symbol, graph: Graph) -> tuple[Demand, ...]:
    constant = any(graph.value(source) is not None for source in symbol.inputs)
    return all_inputs(Demand.WIDE if constant else Demand.COMMON)(symbol, graph)


@expansion("broadcast_add", demands=_demands, guard_bits=GUARD_BITS, adds_constant=True)
def expand_broadcast_add(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """A constant, such as a bias, joins the accumulator at its own scale; two tensors are brought to one scale.

    Xq + round(B / sx), at sx; where X holds no guard bits and sx would round B, or where B is too large for 32 bits at
    sx, X is brought to the common scale first.
    Source: MRT's Quantize Scale; bias at sx * sw[o] is oneDNN's convention for int8 convolutions.
    """
    if all(isinstance(value, Quantized) for value in inputs.values):
        return expand_sum(op, inputs, plan, builder)
    index = next(i for i, value in enumerate(inputs.values) if isinstance(value, Quantized))
    data, constant = builder.centred(inputs.quantized(index)), inputs.parameter(1 - index)
    source = op.inputs[index]
    fine = plan.common[op.name]
    if plan.magnitudes[source.name] > 0:
        fine = max(fine, plan.own[source.name].scale * 2.0**-GUARD_BITS)
    rounds = (data.scale > fine).any() and _rounds(constant, data.scale)
    if rounds or (np.abs(constant / data.scale) > LARGEST_CONSTANT).any():
        data = builder.requantize(data, plan.common_target(op, source))
    integers = round_half_away(constant / data.scale)
    total = builder.add_constant(data.symbol, op.inputs[1 - index].name, integers)
    return builder.quantized(total, data.scale)


@expansion("elemwise_add", "elemwise_sub", "broadcast_sub", "add_n", demands=Demand.COMMON, guard_bits=GUARD_BITS)
def expand_sum(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Every operand at the common scale, which is 4 bits finer than what the sum is rounded to next.

    Ye = Xq1 + Xq2 + ... at s_common: Quantize Scale of "MRT Generalized Quantization Math Formalization".
    """
    operands = [at_common(op, inputs, index, plan, builder).symbol for index in range(len(inputs.values))]
    return builder.quantized(builder.apply(op.operator, operands), plan.common[op.name])


def at_common(op: Symbol, inputs: Inputs, index: int, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Operand `index` at the common scale of `op`; a parameter is quantized there."""
    value = inputs.values[index]
    if isinstance(value, Quantized):
        return value
    source = op.inputs[index]
    return builder.constant_at(source.name, value, plan.common_target(op, source))


def _rounds(constant: Array, scale: Array) -> bool:
    """Whether the constant is no multiple of the scale, so that a finer scale would hold it better."""
    exact = constant / scale
    return not np.allclose(exact, np.rint(exact), rtol=0, atol=1e-6)
