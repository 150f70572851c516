"""Operators that move or select values: scale and zero point stay; Concat brings its inputs to one scale."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from expansions.addition import at_common
from mrt.errors import QuantizationError
from mrt.quantization.builder import IntegerBuilder
from mrt.quantization.expansion import Demand, Inputs, expansion
from mrt.quantization.plan import ScalePlan
from mrt.quantization.quantized import Quantized
from mrt.quantization.quantizer import round_half_away
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.types import narrowest_dtype


def passed_on(op: Symbol, plan: ScalePlan, lo: float, hi: float) -> tuple[float, float]:
    """What matters of the output: values that are moved or selected may saturate before as well as behind."""
    part = plan.reached.get(op.name)
    return (lo, hi) if part is None else (min(max(lo, part.lo), hi), max(min(hi, part.hi), lo))


@expansion(*("Reshape", "transpose", "expand_dims", "squeeze", "slice", "slice_axis", "max"), reach=passed_on)
def expand_same_scale(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Ye = op(Xq) at sx and zx: flatten and its like in "MRT Generalized Quantization Math Formalization"."""
    data = inputs.quantized(0)
    return builder.quantized(builder.apply(op.operator, [data.symbol]), data.step, data.zero_point)


def expand_channelwise(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Ye = op(Xq) at sx and zx of each channel, for operators that leave the channels where they are.

    The scales of channel groups travel with the tensor, so that nothing is split and merged on its way.
    """
    data = inputs.quantized(0)
    return builder.like(builder.apply(op.operator, [data.symbol]), data)


@expansion("Flatten", demands=Demand.CHANNELS)
def expand_flatten(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Ye = flatten(Xq): each channel becomes as many neighbours as it had elements, of its scale and zero point."""
    data = inputs.quantized(0)
    flat = builder.apply(op.operator, [data.symbol])
    if data.groups is None:
        return builder.quantized(flat, data.step, data.zero_point)
    if data.groups.axis != 1:
        raise QuantizationError(f"{op.name} ({op.op}): channel groups along axis {data.groups.axis} do not stay apart")
    shape = data.symbol.shape
    groups = replace(data.groups, step=data.groups.step * prod(shape[2:]))
    zero_points = groups.spread(groups.zero_points, flat.shape)
    return builder.quantized(flat, data.step * groups.spread(groups.factors, flat.shape), zero_points, groups)


@expansion("Pooling", demands=Demand.CHANNELS)
def expand_pooling(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Maximum: Ye = max(Xq) at sx and zx, of the window's elements only, so that the border never shows.

    Sum: Ye = sum(Xq) - n zx at sx, n the number of elements in the window, which varies at the border.
    Source: Pooling of "MRT Generalized Quantization Math Formalization".
    """
    if isinstance(op.operator, Pooling) and op.operator.pool_type == "max":
        return expand_channelwise(op, inputs, plan, builder)
    image = np.ones((1, 1, *op.inputs[0].shape[2:]))
    return _sum(op, inputs, op.operator.evaluate(image), builder)


@expansion("sum")
def expand_sum(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder) -> Quantized:
    """Ye = sum(Xq) - n zx at sx, for sums of n elements."""
    count = op.inputs[0].type.size // op.type.size
    return _sum(op, inputs, np.full((1,) * op.type.rank, count), builder)


def _sum(op: Symbol, inputs: Inputs, counts: Array, builder: IntegerBuilder) -> Quantized:
    """counts: the number of elements in each sum, broadcastable to the output."""
    data = inputs.quantized(0)
    scale, zero_points = (data.step, data.zero_point) if data.groups is None else (data.scale, data.zero_points)
    total = builder.apply(op.operator, [data.symbol])
    if not data.is_centred:
        elements = np.rint(counts).astype(np.int64)
        if (elements == elements.flat[0]).all():
            elements = elements.reshape(-1)[:1].reshape((1,) * op.type.rank)
        total = builder.add_constant(total, f"{op.name}_zero_point", -zero_points * elements, "_centred")
    return builder.quantized(total, scale)


def _pad_demands(symbol: Symbol, graph: Graph) -> tuple[Demand, ...]:
    pads_channels = isinstance(symbol.operator, Pad) and any(symbol.operator.pad_width[2:4])
    return (Demand.NARROW if pads_channels else Demand.CHANNELS,)


@expansion("Pad", demands=_pad_demands)
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
        return expand_channelwise(op, inputs, plan, builder)
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
