"""Functions of one argument that integers compute exactly: abs, negative, square."""

from __future__ import annotations

from mrt.quantization.builder import IntegerBuilder
from mrt.quantization.expansion import Demand, Inputs, expansion
from mrt.quantization.plan import ScalePlan
from mrt.quantization.quantized import Quantized
from mrt.quantization.quantizer import Target
from mrt.symbol import Symbol


@expansion("abs", "negative", demands=Demand.WIDE)
def expand_at_same_scale(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Ye = |Xq - zx| or -(Xq - zx) at sx: exact at any scale."""
    data = builder.centred(inputs.quantized(0))
    return builder.quantized(builder.apply(op.operator, [data.symbol]), data.scale)


LARGEST_ROOT = 46340
"""The largest integer whose square fits 32 bits."""


@expansion("square")
def expand_square(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Ye = (Xq - zx)^2 at sx^2: exact, but for inputs of more than 16 bits, which are brought to 16 first."""
    data = factor(builder.centred(inputs.quantized(0)), builder)
    return builder.quantized(builder.apply(op.operator, [data.symbol]), data.step**2)


def factor(data: Quantized, builder: IntegerBuilder, limit: int = LARGEST_ROOT) -> Quantized:
    """`data` with integers that leave room for what they are multiplied by: at most `limit`, by default for a factor as
    large. Those that are larger are rounded to that many steps; a constant here, not where it is read.
    """
    bounds = builder.bounds(data.symbol)
    if bounds.magnitude <= limit:
        return data
    target = Target(data.step * bounds.magnitude / limit, -limit, limit)
    if bounds.is_constant and bounds.lo.shape == data.symbol.shape:
        return builder.constant_at(data.symbol.name, data.step * bounds.lo, target)
    return builder.requantize(data, target)
