"""Multiplication: a constant goes into the scale where it can, two tensors multiply their integers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from expansions.functions import factor, multiplied_groups
from expansions.transform import output_groups
from mrt.errors import QuantizationError
from mrt.quantization.demand import Demand
from mrt.quantization.expansion import Inputs, all_inputs, expansion
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.integer.requantize import FRAC_BITS, PRODUCT_LIMIT, pre_shift_for
from mrt.quantization.quantizer import SMALLEST_SCALE, ChannelGroups, quantize_parameter
from mrt.quantization.remedies import cut_off
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Array, Graph, Interval, Symbol
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.elementwise import ElemwiseMul
from mrt.symbol.operators.integer import RightShift
from mrt.symbol.types import INT32_MAX


def _constant(symbol: Symbol, graph: Graph) -> Array | None:
    return next((v for source in symbol.inputs if (v := graph.value(source)) is not None), None)


def _demands(symbol: Symbol, graph: Graph) -> tuple[Demand, ...]:
    return all_inputs(Demand.CHANNELS if _constant(symbol, graph) is None else Demand.WIDE)(symbol, graph)


def _gain(symbol: Symbol, graph: Graph) -> float:
    constant = _constant(symbol, graph)
    return 1.0 if constant is None or not constant.size else float(np.abs(constant).max())


@expansion(BroadcastMul, demands=_demands, gain=_gain)
def expand_broadcast_mul(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """X * C for a constant C, or X * Y.

    C with one value, or one a channel: the scale becomes sx |C| and the integers change their sign where C is
    negative; exact. Any other C: Xq * round(C / sc) at sx sc, sc as fine as 32 bits allow.
    X * Y: Xq Yq at sx sy.
    """
    if all(isinstance(value, Quantized) for value in inputs.values):
        return expand_product(op, inputs, plan, builder)
    index = next(i for i, value in enumerate(inputs.values) if isinstance(value, Quantized))
    data, constant = builder.centred(inputs.quantized(index)), inputs.parameter(1 - index).astype(np.float64)
    data = data.uniform if data.is_uniform else data
    name = op.inputs[1 - index].name
    constant = constant.reshape((1,) * (op.type.rank - constant.ndim) + constant.shape)
    if _goes_into_scale(constant, data) and data.symbol.shape == op.shape:
        return scaled(data, constant, name, builder)
    return _multiplied(data, constant, name, builder)


def expand_product(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """(Xq - zx) * (Yq - zy) at the scale sx * sy; factors of more than 16 bits are brought to 16 first where needed.

    Channel groups of one tensor, or of both along one axis, give the product a scale for each channel. Where theirs lie
    along different axes, the second tensor is brought to one scale, which takes 8 bits more at most.
    """
    operands = [builder.centred(inputs.quantized(index)) for index in (0, 1)]
    behind = [output_groups(op, operand, index) for index, operand in enumerate(operands)]
    if all(behind) and len({groups.axis for groups in behind if groups is not None}) > 1:
        operands[1], behind[1] = builder.at_one_scale(operands[1]), None
    return product_of(op, operands, builder, multiplied_groups(*behind))


expansion(ElemwiseMul, demands=Demand.CHANNELS)(expand_product)


def product_of(
    op: Symbol, operands: Sequence[Quantized], builder: IntegerBuilder, groups: ChannelGroups | None = None
) -> Quantized:
    """The products that `op` takes of two centred tensors, at the product of their scales.

    groups: those of the product, where a factor has any.

    Where they, or sums of K of them in any order, would leave 32 bits, the larger factor is rounded to the most steps
    M that do fit, K M N <= 2^31 - 1, N being those of the other; where more than half of its bits would be lost to the
    other both are, to sqrt((2^31 - 1) / K): their relative errors add up, and are least where they are alike. A note
    says so. Error: half a step of a factor, to be taken times the other.
    """
    bounds = [builder.bounds(operand.symbol) for operand in operands]
    reached = (op.operator.bounds(*bounds), *op.operator.intermediates(*bounds))
    if not all(interval.fits_int32 for interval in reached):
        operands = _fitted(op, operands, bounds, builder)
    product = builder.apply(op.operator, [operand.symbol for operand in operands])
    return builder.grouped(product, operands[0].step * operands[1].step, groups)


def _fitted(
    op: Symbol, operands: Sequence[Quantized], bounds: Sequence[Interval], builder: IntegerBuilder
) -> list[Quantized]:
    """The factors with fewer bits, noted."""
    terms = int(op.operator.bounds(*(Interval.of(1, 1, interval.shape) for interval in bounds)).max)
    room = INT32_MAX // terms
    if room < 1:
        raise QuantizationError(
            f"{op.name} ({op.op}): its sums of {terms} products need more than 32 bits whatever the bits of "
            f"{' and '.join(source.name for source in op.inputs)}; {cut_off(op)}"
        )
    smaller = min(int(interval.magnitude) for interval in bounds)
    limit = max(math.isqrt(room), room // max(smaller, 1))
    fitted = []
    for operand, interval, source in zip(operands, bounds, op.inputs, strict=True):
        fitted.append(factor(operand, builder, limit))
        if interval.magnitude > limit:
            builder.notes.append(
                f"{op.name} ({op.op}): {source.name} in {limit} steps instead of {interval.magnitude}, so that sums of "
                f"{terms} products fit 32 bits; a value is off by at most {float(fitted[-1].scale.max()) / 2:.3g} more"
            )
    return fitted


def _goes_into_scale(constant: Array, data: Quantized) -> bool:
    varies = [axis for axis in range(constant.ndim) if constant.shape[axis] > 1]
    scaled = [axis for axis in range(data.scale.ndim) if data.scale.shape[axis] > 1]
    return not varies or (len(varies) == 1 and varies[0] > 0 and scaled in ([], varies))


def scaled(data: Quantized, constant: Array, name: str, builder: IntegerBuilder) -> Quantized:
    """`data` times a float constant of its rank, one value or one a channel, which becomes part of its scale.

    Exact: the integers change their sign where the constant is negative, and are 0 where it is.
    """
    vanishes = np.abs(constant) * data.scale < SMALLEST_SCALE
    scale = data.scale * np.where(vanishes, 1.0, np.abs(constant))
    signs = np.where(vanishes, 0, np.sign(constant)).astype(np.int64)
    if (signs == 1).all():
        return builder.quantized(data.symbol, scale)
    product = builder.apply(BroadcastMul(), [data.symbol, builder.constant(f"{name}_sign", signs)])
    return builder.quantized(product, scale)


def _multiplied(data: Quantized, constant: Array, name: str, builder: IntegerBuilder) -> Quantized:
    symbol, scale = data.symbol, data.scale
    pre_shift = pre_shift_for(builder.bounds(symbol).magnitude)
    if pre_shift:
        amount = builder.constant(f"{name}_pre_shift_by", np.full((1,) * symbol.type.rank, pre_shift))
        symbol = builder.apply(RightShift(), [symbol, amount], "_pre_shift")
        scale = scale * 2.0**pre_shift
    top = min(PRODUCT_LIMIT // max(builder.bounds(symbol).magnitude, 1), 2**FRAC_BITS - 1)
    step = float(np.abs(constant).max()) / top
    if step < SMALLEST_SCALE:
        step = 1.0
    integers = quantize_parameter(constant, step, top)
    product = builder.apply(BroadcastMul(), [symbol, builder.constant(name, integers)])
    return builder.quantized(product, scale * step)
