"""Convolutions between SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND, which are dilated convolutions of the data itself.

Every b-th element of an axis, from each of the first b on, is a sample of its own in between. A convolution of such
samples with stride 1 reads elements b apart, so that it is one of the data with dilation b, and the zeros around a
sample are b times as many around the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mrt.frontend.shared.channels_first import order_of
from mrt.frontend.tflite.node import Node
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.transform import ExpandDims, Reshape, Squeeze, Transpose

Blocks = dict[int, int]
"""How many samples the elements along an axis were dealt out to, for each such axis."""


@dataclass(frozen=True)
class Step:
    """An operator between the two, and which of its inputs is the data."""

    symbol: Symbol
    place: int


def spread_orders(blocks: int, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The transposes of SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND, of data whose `blocks` axes after the first are two:
    (N, H / b, b, W / c, c, C) becomes (b, c, N, H / b, W / c, C), and back.
    """
    split = 2 * blocks + 1
    inner, outer = range(2, split, 2), range(1, split, 2)
    there = (*inner, 0, *outer, *range(split, rank + blocks))
    back = tuple(there.index(axis) for axis in range(rank + blocks))
    return there, back


def undilated(node: Node, data: Symbol, sizes: Sequence[int]) -> Symbol | None:
    """The data of BATCH_TO_SPACE_ND with blocks of these sizes in its own place: what the operators since the
    SPACE_TO_BATCH_ND of the same blocks make of the data before that. None where one of them is not known to be the
    same for the data as for every part of it.
    """
    steps: list[Step] = []
    while (source := _spread(data, sizes)) is None:
        computed = [place for place, given in enumerate(data.inputs) if not _is_constant(given)]
        if data.is_variable or len(computed) != 1:
            return None
        steps.append(Step(data, computed[0]))
        data = data.inputs[computed[0]]
    blocks: Blocks = {axis: size for axis, size in enumerate(sizes, start=1) if size > 1}
    result = source
    for step in reversed(steps):
        operator = _on_whole(step.symbol, blocks, result)
        if operator is None:
            return None
        blocks = _moved(step.symbol, blocks)
        inputs = [result if place == step.place else given for place, given in enumerate(step.symbol.inputs)]
        result = node.scope.apply(operator, inputs, step.symbol.name, "dilated")
    return result if blocks == {axis: size for axis, size in enumerate(sizes, start=1) if size > 1} else None


def _spread(symbol: Symbol, sizes: Sequence[int]) -> Symbol | None:
    """What SPACE_TO_BATCH_ND with blocks of these sizes read, its border included; None for any other symbol."""
    if not isinstance(symbol.operator, Reshape) or order_of(symbol.inputs[0]) is None:
        return None
    apart = symbol.inputs[0].inputs[0]
    if not isinstance(apart.operator, Reshape):
        return None
    data, count = apart.inputs[0], len(sizes)
    there, _ = spread_orders(count, data.type.rank)
    lengths = (apart.shape[axis] for axis in range(2, 2 * count + 1, 2))
    fits = apart.type.rank == data.type.rank + count and tuple(lengths) == tuple(sizes)
    is_spread = fits and order_of(symbol.inputs[0]) == there and symbol.type.rank == data.type.rank
    return data if is_spread and symbol.shape == _dealt(data.shape, sizes) else None


def _dealt(shape: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    batch = shape[0]
    for size in sizes:
        batch *= size
    blocked = tuple(length // size for length, size in zip(shape[1:], sizes, strict=False))
    return (batch, *blocked, *shape[1 + len(sizes) :])


def _is_constant(symbol: Symbol) -> bool:
    """Whether a symbol does not depend on the data; a parameter, or integers of one with their scale."""
    while not symbol.is_variable:
        if not all(given.is_variable for given in symbol.inputs):
            return False
        symbol = symbol.inputs[0]
    return symbol.is_variable


def _on_whole(symbol: Symbol, blocks: Blocks, data: Symbol) -> Operator | None:
    """The operator as it is for data that was not dealt out; None where there is none."""
    operator = symbol.operator
    if isinstance(operator, Convolution):
        return _dilated(symbol, operator, blocks)
    if isinstance(operator, Pad):
        return _padded(operator, blocks)
    if isinstance(operator, (Transpose, ExpandDims, Squeeze)):
        return operator if _moves(symbol, blocks) else None
    if isinstance(operator, Reshape):
        return _reshaped(symbol, blocks, data)
    if not operator.is_elementwise:
        return None
    rank = symbol.type.rank
    others = [given for given in symbol.inputs if _is_constant(given)]
    # A constant that differs along an axis that was dealt out would have to be dealt out too.
    uneven = [axis for axis in (0, *blocks) for given in others if _length(given, axis, rank) != 1]
    return None if uneven else operator


def _length(symbol: Symbol, axis: int, rank: int) -> int:
    """The length of a constant along an axis of what it is broadcast to."""
    own = axis - (rank - symbol.type.rank)
    return symbol.shape[own] if own >= 0 else 1


def _dilated(symbol: Symbol, operator: Convolution, blocks: Blocks) -> Convolution | None:
    """Only the spatial axes, from 2 on, may have been dealt out."""
    spatial = len(operator.kernel)
    factors = [blocks.get(axis, 1) for axis in range(2, 2 + spatial)]
    dilation = operator.dilate or (1,) * spatial
    if min(blocks) < 2 or set(operator.stride) - {1} or set(dilation) - {1}:
        return None
    pads = operator.pad or (0,) * spatial
    wider = tuple(pad * factor for pad, factor in zip(pads, factors, strict=True))
    return replace(operator, dilate=tuple(factors), pad=wider if any(wider) else ())


def _padded(operator: Pad, blocks: Blocks) -> Pad | None:
    if operator.mode != "constant" or any(operator.widths[0]):
        return None
    widths = [width * blocks.get(axis, 1) for axis, pair in enumerate(operator.widths) for width in pair]
    return replace(operator, pad_width=tuple(widths))


def _moves(symbol: Symbol, blocks: Blocks) -> bool:
    """Whether an operator that moves axes leaves the first one and those that were dealt out as long as they are."""
    return len(_moved(symbol, blocks)) == len(blocks) and symbol.shape[0] == symbol.inputs[0].shape[0]


def _reshaped(symbol: Symbol, blocks: Blocks, data: Symbol) -> Reshape | None:
    """A reshape that adds and takes away axes of length 1 only."""
    if not _moves(symbol, blocks):
        return None
    lengths = dict(_unit_moves(symbol.inputs[0].shape, symbol.shape))
    sizes = {new: data.shape[old] for old, new in lengths.items()}
    return Reshape(shape=(0, *(sizes.get(axis, 1) for axis in range(1, symbol.type.rank))))


def _unit_moves(before: Sequence[int], after: Sequence[int]) -> list[tuple[int, int]]:
    """Where each axis that is longer than 1 goes; nothing where the others are not the same."""
    old, new = ([axis for axis, size in enumerate(shape) if size != 1] for shape in (before, after))
    same = [before[axis] for axis in old] == [after[axis] for axis in new]
    return list(zip(old, new, strict=True)) if same else []


def _moved(symbol: Symbol, blocks: Mapping[int, int]) -> Blocks:
    """The axes that were dealt out, where the operator leaves them; those that it does not keep are left out."""
    operator, data = symbol.operator, symbol.inputs[0]
    if isinstance(operator, Transpose):
        order = operator.order(data.type.rank)
        return {order.index(axis): size for axis, size in blocks.items()} if order[0] == 0 else {}
    if isinstance(operator, (ExpandDims, Squeeze, Reshape)):
        moves = dict(_unit_moves(data.shape, symbol.shape))
        return {moves[axis]: size for axis, size in blocks.items() if axis in moves} if moves.get(0) == 0 else {}
    return dict(blocks)
