"""Operators that repeat, exchange or choose values: of one tensor at its scale, of several at one scale."""

from __future__ import annotations

import numpy as np

from expansions.addition import at_common
from expansions.transform import carried, expand_same_scale, reach_of_output
from mrt.errors import QuantizationError
from mrt.quantization.demand import Demand
from mrt.quantization.expansion import Inputs, expansion
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.quantizer import Target
from mrt.quantization.remedies import given_integers
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.operation import Operation
from mrt.symbol.operators.arrangement import (
    DepthToSpace,
    Repeat,
    SliceLike,
    SpaceToDepth,
    SwapAxis,
    Tile,
    UpSampling,
)
from mrt.symbol.operators.ordering import TopK
from mrt.symbol.operators.selection import (
    ArgMax,
    ArgMin,
    BroadcastMaximum,
    BroadcastMinimum,
    ElemwiseMaximum,
    ElemwiseMinimum,
    Embedding,
    Min,
    Where,
)
from mrt.symbol.operators.transform import Slice, Take
from mrt.symbol.types import narrowest_dtype

PLACE_BITS = 8
"""How much finer than its own quantizer argmax compares a tensor whose channels have scales of their own."""
TABLE_LIMIT = 2**15 - 1
"""The largest integer of an embedding's table: 16 bits."""
INDEX_ERROR = 0.5
"""An index off by less is rounded to the right one."""

expansion(
    *(SwapAxis, Tile, Repeat, DepthToSpace, SpaceToDepth, UpSampling, Min),
    demands=Demand.CHANNELS,
    reach=reach_of_output,
)(expand_same_scale)


@expansion(SliceLike, demands=Demand.CHANNELS)
def expand_slice_like(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """The slice that the second tensor's shape says, at sx and zx; the second tensor is not read."""
    data = inputs.quantized(0)
    ends = tuple(None if n == m else n for n, m in zip(op.shape, data.symbol.shape, strict=True))
    part = Slice(begin=(None,) * len(ends), end=ends)
    return carried(op, builder.apply(part, [data.symbol]), data, builder)


@expansion(ElemwiseMaximum, ElemwiseMinimum, BroadcastMaximum, BroadcastMinimum, demands=Demand.COMMON)
def expand_comparison(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Both operands at one scale, then compared: exact there. One that is proven to be chosen everywhere is the result.

    Source: Quantize Scale of "MRT Generalized Quantization Math Formalization".
    """
    operands = [at_common(op, inputs, index, plan, builder) for index in (0, 1)]
    for one, other in (operands, operands[::-1]):
        if one.symbol.shape == op.shape and _is_chosen(op, one, other, builder):
            return one
    result = builder.apply(op.operator, _of_one_dtype(operands, builder))
    return builder.quantized(result, operands[0].step, operands[0].zero_point)


def _is_chosen(op: Symbol, one: Quantized, other: Quantized, builder: IntegerBuilder) -> bool:
    """Whether a maximum or minimum always takes `one`."""
    mine, theirs = builder.bounds(one.symbol), builder.bounds(other.symbol)
    if op.operator.operation is Operation.MINIMUM:
        return bool((mine.hi <= theirs.lo).all())
    return bool((mine.lo >= theirs.hi).all())


def _where_demands(symbol: Symbol, graph: Graph) -> tuple[Demand, ...]:
    return Demand.NARROW, Demand.COMMON, Demand.COMMON


@expansion(Where, demands=_where_demands)
def expand_where(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Both values at one scale, chosen by whether Cq - zc is 0; a condition below half its step counts as 0.

    Source: Quantize Scale of "MRT Generalized Quantization Math Formalization".
    """
    condition = inputs.values[0]
    if isinstance(condition, Quantized):
        mask = builder.centred(condition).symbol
    else:
        mask = builder.constant(op.inputs[0].name, (condition != 0).astype(np.int64))
    operands = [at_common(op, inputs, index, plan, builder) for index in (1, 2)]
    result = builder.apply(op.operator, [mask, *_of_one_dtype(operands, builder)])
    return builder.quantized(result, operands[0].step, operands[0].zero_point)


def _of_one_dtype(operands: list[Quantized], builder: IntegerBuilder) -> list[Symbol]:
    bounds = [builder.bounds(operand.symbol) for operand in operands]
    dtype = narrowest_dtype(int(min(b.min for b in bounds)), int(max(b.max for b in bounds)))
    return [builder.cast(operand.symbol, dtype) for operand in operands]


def _nothing(symbol: Symbol, graph: Graph) -> float:
    """The gain of operators whose output does not grow with what they read wide."""
    return 0.0


@expansion(ArgMax, ArgMin, demands=Demand.WIDE, gain=_nothing)
def expand_place(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """The place of the extreme of Xq: plain integers, scale 1. Exact where X has one scale.

    Where its channels have scales of their own they are brought to one, 8 bits finer than the tensor's quantizer, and
    values nearer than that count as equal.
    """
    data = _at_one_fine_scale(op, inputs, plan, builder)
    return builder.quantized(builder.apply(op.operator, [data.symbol]), 1.0)


def _at_one_fine_scale(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    data = inputs.quantized(0)
    if data.is_uniform:
        return data.uniform
    own, fine = plan[op.inputs[0]].own, 2**PLACE_BITS
    return builder.requantize(data, Target(own.scale / fine, -own.reach * fine, own.reach * fine, pinned=True))


def _ordered_gain(symbol: Symbol[TopK], graph: Graph) -> float:
    return 1.0 if symbol.operator.gives_values else 0.0


@expansion(TopK, demands=Demand.WIDE, gain=_ordered_gain)
def expand_topk(op: Symbol[TopK], inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """The first k of Xq in their order, at sx and zx, or their places, plain integers at scale 1.

    Exact where X has one scale, and else as in `expand_place`. What rounding makes equal keeps the order of its places.
    """
    data = _at_one_fine_scale(op, inputs, plan, builder)
    found = builder.apply(op.operator, [data.symbol])
    return (
        builder.quantized(found, data.step, data.zero_point)
        if op.operator.gives_values
        else builder.quantized(found, 1.0)
    )


def _take_demands(symbol: Symbol, graph: Graph) -> tuple[Demand, ...]:
    return Demand.NARROW, Demand.WIDE


def _embedding_demands(symbol: Symbol, graph: Graph) -> tuple[Demand, ...]:
    return Demand.WIDE, Demand.NARROW


@expansion(Take, demands=_take_demands, gain=_nothing)
def expand_take(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Ye = Xq[indices] at sx and zx; the indices are plain integers. A parameter is quantized as in Embedding."""
    data = inputs.values[0]
    if not isinstance(data, Quantized):
        data = _table(op, 0, data, plan, builder)
    indices = _indices(op, inputs, 1, builder)
    return builder.quantized(builder.apply(op.operator, [data.symbol, indices]), data.step, data.zero_point)


@expansion(Embedding, demands=_embedding_demands, gain=_nothing)
def expand_embedding(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Ye = Tq[indices]; the table holds round(T / s) + z at the s and z of what reads the result next.

    The indices are plain integers, such as token ids, which the model is best given as integers.
    """
    data = _table(op, 1, inputs.parameter(1), plan, builder)
    indices = _indices(op, inputs, 0, builder)
    return builder.quantized(builder.apply(op.operator, [indices, data.symbol]), data.step, data.zero_point)


def _table(op: Symbol, index: int, values: Array, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """A parameter that is read by indices, quantized whole: rows that calibration never read are not cut."""
    source, target = op.inputs[index], plan[op].rounded_to
    magnitude = plan[source].magnitude
    scale = max(target.scale, magnitude / TABLE_LIMIT)
    top = max(int(np.ceil(magnitude / scale)), 1)
    zero_point = target.zero_point if scale == target.scale else 0
    return builder.constant_at(
        source.name, values, Target(scale, zero_point - top, zero_point + top, zero_point=zero_point)
    )


def _indices(op: Symbol, inputs: Inputs, index: int, builder: IntegerBuilder) -> Symbol:
    """The indices as integers at scale 1; QuantizationError where their quantizer does not tell them apart."""
    value, name = inputs.values[index], op.inputs[index].name
    if not isinstance(value, Quantized):
        # Float indices are truncated, as MXNet does.
        return builder.constant(name, value.astype(np.int64))
    largest = builder.bounds(builder.centred(value).symbol).magnitude * value.step
    if value.is_uniform and value.step == 1:
        return builder.centred(value).symbol
    if not value.is_uniform or value.step / 2 + largest * 2.0**-15 >= INDEX_ERROR:
        raise QuantizationError(
            f"{op.name} ({op.op}): the indices {name} have steps of {value.scale.max():.3g}; steps of 1 are needed: if "
            f"they are an input of the model, give them as integers ({given_integers(name)}), else raise their bits"
        )
    top = int(np.ceil(largest)) + 1
    return builder.requantize(value, Target(1.0, -top, top, pinned=True)).symbol
