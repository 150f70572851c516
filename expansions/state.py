"""What a network keeps from one call to the next, at the scale of the input that holds it."""

from __future__ import annotations

from mrt.quantization.demand import Demand
from mrt.quantization.expansion import Inputs, expansion
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Symbol
from mrt.symbol.operators.state import Assign


@expansion(Assign, demands=Demand.WIDE)
def expand_assign(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Yq = Vq at the scale s and zero point z of the state S, and initially round(i / s) + z.

    V is brought to the quantizer of S and saturates there: so Yq lies where Sq does, and the bounds of one call are
    those of every call.
    """
    value, state, target = inputs.values[0], inputs.quantized(1), plan[op].output
    dtype = state.symbol.dtype
    if isinstance(value, Quantized):
        value = builder.requantize(value, target)
    else:
        value = builder.constant_at(op.inputs[0].name, value, target)
    first = builder.constant_at(op.inputs[2].name, inputs.parameter(2), target, dtype)
    made = builder.apply(op.operator, [builder.cast(value.symbol, dtype), state.symbol, first.symbol])
    return builder.quantized(made, state.scale, state.zero_points)
