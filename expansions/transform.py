"""Operators that move or select values: scale and zero point stay; Concat brings its inputs to one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from expansions.addition import at_common
from mrt.errors import QuantizationError
from mrt.quantization.demand import Demand
from mrt.quantization.expansion import Inputs, expansion, kept_target
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.integer.requantize import shifted_magnitude
from mrt.quantization.quantizer import ChannelGroups, Target, round_half_away
from mrt.quantization.tensor_plan import UNLIMITED, Plan, TensorPlan
from mrt.symbol import Array, Graph, Interval, Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastSub
from mrt.symbol.operators.integer import LeftShift
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.reduce import Max, Sum
from mrt.symbol.operators.transform import Concat, ExpandDims, Flatten, Reshape, Slice, SliceAxis, Squeeze, Transpose
from mrt.symbol.types import INT32_MAX, narrowest_dtype


def reach_of_output(op: Symbol, planned: TensorPlan, lo: float, hi: float) -> tuple[float, float]:
    """What matters of the output: values that are moved or selected may saturate before as well as behind."""
    part = planned.used
    return (lo, hi) if part is None else (min(max(lo, part.lo), hi), max(min(hi, part.hi), lo))


@expansion(
    *(Flatten, Reshape, Transpose, ExpandDims, Squeeze, Slice, SliceAxis),
    demands=Demand.CHANNELS,
    reach=reach_of_output,
    defers_rounding=lambda symbol: True,
    moves=True,
)
def expand_same_scale(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Ye = op(Xq) at sx and zx: flatten and its like in "MRT Generalized Quantization Math Formalization".

    The scales and zero points of channel groups travel with the channels, wherever the operator puts these, so that
    nothing is split and merged on its way.
    """
    data = apart(op, inputs.quantized(0), builder)
    return carried(op, builder.apply(op.operator, [data.symbol]), data, builder)


expansion(*(Max,), demands=Demand.CHANNELS, reach=reach_of_output, defers_rounding=lambda symbol: True)(
    expand_same_scale
)


def carried(op: Symbol, made: Symbol, data: Quantized, builder: IntegerBuilder) -> Quantized:
    """`made`, of the shape of `op`, standing for reals as `data`, its first input, does."""
    groups = output_groups(op, data)
    if groups is None and not data.is_uniform:
        scales = _scales_behind(op, data)
        if scales is None:
            raise QuantizationError(f"{op.name} ({op.op}): the scales of {op.inputs[0].name} do not stay apart")
        return builder.quantized(made, scales)
    if groups is None:
        return builder.quantized(made, data.step, data.zero_point)
    zero_points = groups.spread(groups.zero_points, made.shape)
    return builder.quantized(made, data.step * groups.spread(groups.factors, made.shape), zero_points, groups)


def _scales_behind(op: Symbol, data: Quantized) -> Array | None:
    """The scales of a centred accumulator as they lie in the output of `op`, of its rank, each axis 1 or full; None
    where elements of several scales come together, or scales would have to be repeated."""
    operator, scale = op.operator, data.scale
    if operator.moves_elements:
        moved = operator.bounds(Interval.of(scale, scale, data.symbol.shape))
        return moved.lo if moved.is_constant and moved.lo.size <= scale.size else None
    axis = int(np.argmax(scale.shape))
    behind = operator.kept_axis(axis, 0, *(source.type for source in op.inputs))
    if behind is None or scale.size > scale.shape[axis]:
        return None
    scales = np.repeat(scale.reshape(-1), op.shape[behind] // data.symbol.shape[axis])
    return scales.reshape(tuple(-1 if a == behind else 1 for a in range(op.type.rank)))


def apart(op: Symbol, data: Quantized, builder: IntegerBuilder) -> Quantized:
    """`data` as `op` can carry it on: channels that have scales which would not stay apart at one, those of groups at
    their common one, exactly, those of an accumulator as fine as the finest of them as far as 28 bits allow."""
    if data.groups is None and data.is_uniform:
        return data
    if data.groups is None and _scales_behind(op, data) is not None:
        return builder.centred(data)
    types = [source.type for source in op.inputs]
    if data.groups is not None and op.operator.kept_axis(data.groups.axis, 0, *types) is not None:
        return data
    data = builder.centred(data)
    largest = max(data.groups.factors) if data.groups is not None else 1
    if data.groups is not None and largest * builder.bounds(data.symbol).magnitude <= INT32_MAX:
        return builder.at_one_scale(data)
    reach = float((builder.bounds(data.symbol).magnitude * data.scale).max())
    scale = max(float(data.scale.min()), reach * 2.0**-28)
    return builder.requantize(data, Target(scale, -UNLIMITED, UNLIMITED, pinned=True, exact=True))


def output_groups(op: Symbol, data: Quantized, index: int = 0) -> ChannelGroups | None:
    """The channel groups of `data`, input `index` of `op`, as they lie in its output; None where there are none."""
    if data.groups is None:
        return None
    axis = op.operator.kept_axis(data.groups.axis, index, *(source.type for source in op.inputs))
    if axis is None:
        raise QuantizationError(f"{op.name} ({op.op}): channel groups along axis {data.groups.axis} do not stay apart")
    neighbours = op.shape[axis] // data.symbol.shape[data.groups.axis]
    return replace(data.groups, axis=axis, step=data.groups.step * neighbours)


def _is_maximum(symbol: Symbol[Pooling]) -> bool:
    return symbol.operator.pool_type == "max"


@expansion(Pooling, demands=Demand.CHANNELS, defers_rounding=_is_maximum)
def expand_pooling(op: Symbol[Pooling], inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Maximum: Ye = max(Xq) at sx and zx, of the window's elements only, so that the border never shows.

    Sum: Ye = sum(Xq) - n zx at sx, n the number of elements in the window, which varies at the border.
    Source: Pooling of "MRT Generalized Quantization Math Formalization".
    """
    if _is_maximum(op):
        data = inputs.quantized(0)
        return builder.like(builder.apply(op.operator, [data.symbol]), data)
    image = np.ones((1, 1, *op.inputs[0].shape[2:]))
    return _sum(op, inputs, op.operator.evaluate(image), builder)


@expansion(Sum, demands=Demand.CHANNELS)
def expand_sum(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Ye = sum(Xq) - n zx at sx, for sums of n elements."""
    count = op.inputs[0].type.size // op.type.size
    return _sum(op, inputs, np.full((1,) * op.type.rank, count), builder)


def _sum(op: Symbol, inputs: Inputs, counts: Array, builder: IntegerBuilder) -> Quantized:
    """counts: the number of elements in each sum, broadcastable to the output."""
    data, count = inputs.quantized(0), int(np.rint(counts.max()))
    bounds = builder.bounds(data.symbol)
    centred = bounds.map(lambda end: end - data.zero_points)
    if count * int(max(bounds.magnitude, centred.magnitude)) > INT32_MAX:
        return _split_sum(op, data, count, builder)
    groups = output_groups(op, data)
    total = builder.apply(op.operator, [data.symbol])
    if not data.is_centred:
        elements = np.rint(counts).astype(np.int64)
        if (elements == elements.flat[0]).all():
            elements = elements.reshape(-1)[:1].reshape((1,) * op.type.rank)
        zero_points = data.zero_point if groups is None else groups.spread(groups.zero_points, op.shape)
        total = builder.add_constant(total, f"{op.name}_zero_point", -zero_points * elements, "_centred")
    return builder.grouped(total, data.step, groups)


def _split_sum(op: Symbol, data: Quantized, count: int, builder: IntegerBuilder) -> Quantized:
    """The sums of so many elements of `data`, centred, 2^n times as coarse, n the least for which they fit 32 bits.

    sum(Xq) >> n = sum(H) + (sum(Xq - 2^n H) >> n),  H = Xq >> n, so that a sum is rounded once, not each element.
    """
    data = builder.centred(data)
    magnitude = int(builder.bounds(data.symbol).magnitude)
    shift = next(by for by in range(1, 32) if count * (shifted_magnitude(magnitude, by) + 1) <= INT32_MAX or by == 31)
    high = builder.shifted(data.symbol, shift, "_high")
    by = builder.constant(f"{op.name}_high_by", np.full((1,) * data.symbol.type.rank, shift))
    low = builder.apply(BroadcastSub(), [data.symbol, builder.apply(LeftShift(), [high, by], "_high_part")], "_low")
    # What rounding to the nearest leaves: the difference alone would be bounded as if both were independent.
    low = builder.clip_to(low, -(1 << (shift - 1)), (1 << (shift - 1)) - 1)
    highs, lows = (builder.apply(op.operator, [part], f"_{name}s") for part, name in ((high, "high"), (low, "low")))
    total = builder.apply(BroadcastAdd(), [highs, builder.shifted(lows, shift, "_rest")])
    return builder.grouped(total, data.step * 2.0**shift, output_groups(op, data))


def _pad_form(symbol: Symbol[Pad], graph: Graph, sources: Sequence[Target | None]) -> Target | None:
    """The input's form, with room for the border, where that is one of its integers."""
    target, operator = kept_target(symbol, graph, sources), symbol.operator
    if target is None or operator.mode != "constant":
        return target
    if target.groups is not None:
        return target if operator.constant_value == 0 else None
    border = operator.constant_value / target.scale + target.zero_point
    nearest = int(np.rint(border))
    if abs(border - nearest) > 1e-4:
        return None
    return replace(target, lo=min(target.lo, nearest), hi=max(target.hi, nearest))


@expansion(Pad, demands=Demand.CHANNELS, trained_form=_pad_form, defers_rounding=lambda symbol: True)
def expand_pad(op: Symbol[Pad], inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """The border holds round(constant / sx) + zx: pad of "MRT Generalized Quantization Math Formalization".

    Beside a tensor that was only ever zero, whose scale says nothing, it is rounded to the output's own.
    """
    data, operator = inputs.quantized(0), op.operator
    target = plan.output_quantizer(op, 0)
    if plan.edge(op, 0) is None:
        data = apart(op, data, builder)
        if operator.constant_value:
            data = builder.requantize(data, plan.common_target(op, 0))
    elif target.pinned:
        data = builder.requantize(data, target)
    symbol = data.symbol
    if operator.mode != "constant":
        return carried(op, builder.apply(operator, [symbol]), data, builder)
    if data.groups is not None:
        return _pad_channels(operator, data, builder)
    if not data.is_uniform:
        return carried(op, builder.apply(operator, [symbol]), data, builder)
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


def _concat_form(symbol: Symbol, graph: Graph, sources: Sequence[Target | None]) -> Target | None:
    """The form that all inputs have, with room for each."""
    first = sources[0]
    if first is None or first.groups is not None:
        return None
    targets = [source for source in sources if source is not None and source.groups is None]
    alike = {(target.scale, target.zero_point) for target in targets}
    if len(targets) < len(sources) or len(alike) > 1:
        return None
    return replace(first, lo=min(target.lo for target in targets), hi=max(target.hi for target in targets))


@expansion(Concat, demands=Demand.COMMON, trained_form=_concat_form)
def expand_concat(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Inputs at one scale, then Concat: Quantize Scale of "MRT Generalized Quantization Math Formalization".

    Inputs that keep scales of their own are channel groups of the result.
    """
    values = [at_common(op, inputs, index, plan, builder) for index in range(len(inputs.values))]
    operands = [value.symbol for value in values]
    bounds = [builder.bounds(operand) for operand in operands]
    dtype = narrowest_dtype(int(min(b.min for b in bounds)), int(max(b.max for b in bounds)))
    same = [builder.cast(operand, dtype) for operand in operands]
    joined, read = builder.apply(op.operator, same), plan[op].next_target
    if plan[op].parts is None or read is None or read.groups is None:
        return builder.quantized(joined, plan[op].common_scale, values[0].zero_point)
    groups = read.groups if read.hi < UNLIMITED else read.groups.centred
    return builder.quantized(joined, read.scales(op.shape), groups.spread(groups.zero_points, op.shape), groups)
