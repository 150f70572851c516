"""Functions of one argument that integers compute exactly: abs, negative, square."""

from __future__ import annotations

from math import gcd

from mrt.quantization.demand import Demand
from mrt.quantization.expansion import Inputs, expansion
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.quantizer import ChannelGroups, Target
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Symbol
from mrt.symbol.operators.functions import Abs, Negative, Square


@expansion(Abs, Negative, demands=Demand.WIDE)
def expand_at_same_scale(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Ye = |Xq - zx| or -(Xq - zx) at sx: exact at any scale."""
    data = builder.centred(inputs.quantized(0))
    return builder.quantized(builder.apply(op.operator, [data.symbol]), data.scale)


LARGEST_ROOT = 46340
"""The largest integer whose square fits 32 bits."""


@expansion(Square, demands=Demand.CHANNELS)
def expand_square(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Ye = (Xq - zx)^2 at sx^2: exact, but for inputs of more than 16 bits, which are brought to 16 first."""
    data = factor(builder.centred(inputs.quantized(0)), builder)
    groups = multiplied_groups(data.groups, data.groups)
    return builder.grouped(builder.apply(op.operator, [data.symbol]), data.step**2, groups)


def multiplied_groups(left: ChannelGroups | None, right: ChannelGroups | None) -> ChannelGroups | None:
    """The groups of a product whose factors lie in groups along one axis: the factors of these multiply, exactly."""
    if left is None or right is None:
        return left or right
    step = gcd(left.step, right.step)
    ends = min(len(groups.factors) * groups.step for groups in (left, right))
    starts = range(0, ends, step)
    factors = tuple(left.factors[start // left.step] * right.factors[start // right.step] for start in starts)
    return ChannelGroups(left.axis, step, factors, (0,) * len(factors))


def factor(data: Quantized, builder: IntegerBuilder, limit: int = LARGEST_ROOT) -> Quantized:
    """`data`, centred, with integers that leave room for what they are multiplied by: at most `limit`, by default for a
    factor as large. Those that are larger are rounded to that many steps; a constant here, not where it is read.
    """
    bounds = builder.bounds(data.symbol)
    if bounds.magnitude <= limit:
        return data
    target = Target(data.step * bounds.magnitude / limit, -limit, limit, groups=data.groups)
    if bounds.is_constant and bounds.lo.shape == data.symbol.shape:
        return builder.constant_at(data.symbol.name, data.step * bounds.lo, target)
    return builder.requantize(data, target)
