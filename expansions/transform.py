"""Operators that move or select values: scale and zero point stay; Concat brings its inputs to one scale."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from expansions.addition import at_common
from mrt.errors import QuantizationError
from mrt.quantization.builder import IntegerBuilder
from mrt.quantization.expansion import Demand, Inputs, expansion
from mrt.quantization.plan import ScalePlan
from mrt.quantization.quantized import Quantized
from mrt.quantization.quantizer import ChannelGroups, round_half_away
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.types import narrowest_dtype


def passed_on(op: Symbol, plan: ScalePlan, lo: float, hi: float) -> tuple[float, float]:
    """What matters of the output: values that are moved or selected may saturate before as well as behind."""
    part = plan.reached.get(op.name)
    return (lo, hi) if part is None else (min(max(lo, part.lo), hi), max(min(hi, part.hi), lo))


@expansion(
    *("Flatten", "Reshape", "transpose", "expand_dims", "squeeze", "slice", "slice_axis", "max"),
    demands=Demand.CHANNELS,
    reach=passed_on,
)
def expand_same_scale(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Ye = op(Xq) at sx and zx: flatten and its like in "MRT Generalized Quantization Math Formalization".

    The scales and zero points of channel groups travel with the channels, wherever the operator puts these, so that
    nothing is split and merged on its way.
    """
    data = inputs.quantized(0)
    return carried(op, builder.apply(op.operator, [data.symbol]), data, builder)


def carried(op: Symbol, made: Symbol, data: Quantized, builder: IntegerBuilder) -> Quantized:
    """`made`, of the shape of `op`, standing for reals as `data`, its first input, does."""
    groups = groups_behind(op, data)
    if groups is None:
        return builder.quantized(made, data.step, data.zero_point)
    zero_points = groups.spread(groups.zero_points, made.shape)
    return builder.quantized(made, data.step * groups.spread(groups.factors, made.shape), zero_points, groups)


def groups_behind(op: Symbol, data: Quantized, index: int = 0) -> ChannelGroups | None:
    """The channel groups of `data`, input `index` of `op`, as they lie in its output; None where there are none."""
    if data.groups is None:
        return None
    axis = op.operator.kept_axis(data.groups.axis, index, *(source.type for source in op.inputs))
    if axis is None:
        raise QuantizationError(f"{op.name} ({op.op}): channel groups along axis {data.groups.axis} do not stay apart")
    neighbours = op.shape[axis] // data.symbol.shape[data.groups.axis]
    return replace(data.groups, axis=axis, step=data.groups.step * neighbours)


@expansion("Pooling", demands=Demand.CHANNELS)
def expand_pooling(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Maximum: Ye = max(Xq) at sx and zx, of the window's elements only, so that the border never shows.

    Sum: Ye = sum(Xq) - n zx at sx, n the number of elements in the window, which varies at the border.
    Source: Pooling of "MRT Generalized Quantization Math Formalization".
    """
    if isinstance(op.operator, Pooling) and op.operator.pool_type == "max":
        return expand_same_scale(op, inputs, plan, builder)
    image = np.ones((1, 1, *op.inputs[0].shape[2:]))
    return _sum(op, inputs, op.operator.evaluate(image), builder)


@expansion("sum", demands=Demand.CHANNELS)
def expand_sum(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Ye = sum(Xq) - n zx at sx, for sums of n elements."""
    count = op.inputs[0].type.size // op.type.size
    return _sum(op, inputs, np.full((1,) * op.type.rank, count), builder)


def _sum(op: Symbol, inputs: Inputs, counts: Array, builder: IntegerBuilder) -> Quantized:
    """counts: the number of elements in each sum, broadcastable to the output."""
    data = inputs.quantized(0)
    groups = groups_behind(op, data)
    total = builder.apply(op.operator, [data.symbol])
    if not data.is_centred:
        elements = np.rint(counts).astype(np.int64)
        if (elements == elements.flat[0]).all():
            elements = elements.reshape(-1)[:1].reshape((1,) * op.type.rank)
        zero_points = data.zero_point if groups is None else groups.spread(groups.zero_points, op.shape)
        total = builder.add_constant(total, f"{op.name}_zero_point", -zero_points * elements, "_centred")
    return builder.grouped(total, data.step, groups)


@expansion("Pad", demands=Demand.CHANNELS)
def expand_pad(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """The border holds round(constant / sx) + zx: pad of "MRT Generalized Quantization Math Formalization".

    Beside a tensor that was only ever zero, whose scale says nothing, it is rounded to the output's own.
    """
    data, operator = inputs.quantized(0), op.operator
    if not isinstance(operator, Pad):
        raise QuantizationError(f"{op.name} ({op.op}): a Pad is needed")
    target = plan.output_quantizer(op, op.inputs[0])
    if target.pinned:
        data = builder.requantize(data, target)
    symbol = data.symbol
    if operator.mode != "constant":
        return carried(op, builder.apply(operator, [symbol]), data, builder)
    if data.groups is not None:
        return _pad_channels(operator, data, builder)
    border = int(round_half_away(np.asarray(operator.constant_value / data.step))) + data.zero_point
    bounds = builder.bounds(symbol).including(border)
    symbol = builder.cast(symbol, narrowest_dtype(int(bounds.min), int(bounds.max)))
    operator = replace(operator, constant_value=float(border))
    return builder.quantized(builder.apply(operator, [symbol]), data.step, data.zero_point)


def _pad_channels(operator: Pad, data: Quantized, builder: IntegerBuilder) -> Quantized:
    """pad(Xq - b) + b with zeros as the border, b the integer of the constant in each channel; nothing where b = 0."""
    border = round_half_away(operator.constant_value / data.scale) + data.zero_points
    zeros = replace(operator, constant_value=0.0)
    if not border.any():
        return builder.like(builder.apply(zeros, [data.symbol]), data)
    moved = builder.add_constant(data.symbol, f"{data.symbol.name}_border", -border, "_moved")
    padded = builder.apply(zeros, [moved], "_padded")
    back = builder.add_constant(padded, f"{data.symbol.name}_border", border)
    bounds = builder.bounds(data.symbol)
    lo, hi = min(int(bounds.min), int(border.min())), max(int(bounds.max), int(border.max()))
    return builder.like(builder.narrow(back, lo, hi), data)


@expansion("Concat", demands=Demand.COMMON)
def expand_concat(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Inputs at one scale, then Concat: Quantize Scale of "MRT Generalized Quantization Math Formalization"."""
    values = [at_common(op, inputs, index, plan, builder) for index in range(len(inputs.values))]
    operands = [value.symbol for value in values]
    bounds = [builder.bounds(operand) for operand in operands]
    dtype = narrowest_dtype(int(min(b.min for b in bounds)), int(max(b.max for b in bounds)))
    same = [builder.cast(operand, dtype) for operand in operands]
    return builder.quantized(builder.apply(op.operator, same), plan.common[op.name], values[0].zero_point)
