"""Cast: the integers and their scale stay, since a dtype says how real values are held and not what they are."""

from __future__ import annotations

from mrt.errors import UnsupportedOperatorError
from mrt.quantization.demand import Demand
from mrt.quantization.expansion import Inputs, expansion
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.remedies import cut_off
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Symbol
from mrt.symbol.operators.activation import Clip
from mrt.symbol.operators.functions import Abs
from mrt.symbol.operators.integer import Cast


@expansion(Cast, demands=Demand.WIDE, defers_rounding=lambda symbol: True, moves=True)
def expand(op: Symbol[Cast], inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Ye = Xq at sx and zx, of integers and truth values, which every other dtype holds as they are.

    As a truth value, min(|Xq - zx|, 1) at scale 1, where X may be others than 0 and 1.
    """
    if op.inputs[0].type.is_float and not op.type.is_float:
        raise UnsupportedOperatorError(
            f"{op.name} (Cast) cuts the floats {op.inputs[0].name} to {op.dtype}, which has no integer form; round "
            f"to floats instead, or where it ends the network {cut_off(op)}"
        )
    data = inputs.quantized(0)
    if op.dtype != "bool":
        return data
    centred = builder.centred(data).symbol
    bounds = builder.bounds(centred)
    if data.is_uniform and data.step == 1 and bounds.min >= 0 and bounds.max <= 1:
        return data
    return builder.quantized(builder.apply(Clip(a_min=0, a_max=1), [builder.apply(Abs(), [centred])]), 1.0)
