"""RotaryEmbedding: pairs of elements turned by an angle for each position."""

from __future__ import annotations

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shared.shaping import reshaped
from mrt.symbol import Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul, BroadcastSub
from mrt.symbol.operators.transform import Concat, ExpandDims, SliceAxis, Take, Transpose


@converter("RotaryEmbedding")
def rotary_embedding(node: Node) -> Symbol:
    """(a cos - b sin, a sin + b cos) of the pairs (a, b) among the first elements of each head; the others stay.

    Data (batch, heads, sequence, size), or (batch, sequence, heads * size). A pair is two neighbours if interleaved,
    else an element of the first half and one of the second. cos and sin are rows for each position, taken by the
    position's number where numbers are given.
    """
    data, heads = _apart(node)
    size = heads.shape[3]
    turned = node.integer("rotary_embedding_dim", 0) or size
    if turned > size or turned % 2:
        raise node.unsupported("attribute rotary_embedding_dim", turned, f"an even number up to {size}")
    part = heads if turned == size else _slice(node, heads, 0, turned, "turning")
    pairs = _pairs(node, part)
    cos, sin = (_angles(node, index, name, turned // 2) for index, name in ((1, "cos"), (2, "sin")))
    first, second = (
        node.apply(SliceAxis(axis=-1, begin=place, end=place + 1), [pairs], f"pair{place}") for place in (0, 1)
    )
    left = _combined(node, BroadcastSub(), (first, cos), (second, sin), "left")
    right = _combined(node, BroadcastAdd(), (first, sin), (second, cos), "right")
    result = _joined(node, left, right, part)
    if turned < size:
        rest = _slice(node, heads, turned, size, "rest")
        result = node.apply(Concat(dim=3), [result, rest], "heads_whole")
    if data.type.rank == 4:
        return result
    return reshaped(node, node.apply(Transpose(axes=(0, 2, 1, 3)), [result], "heads_back"), data.shape)


def _apart(node: Node) -> tuple[Symbol, Symbol]:
    """The data, and as (batch, heads, sequence, size)."""
    data, count = node.symbol(0), node.integer("num_heads", 0)
    if data.type.rank == 4:
        return data, data
    if data.type.rank != 3 or count < 1 or data.shape[2] % count:
        raise GraphError(f"{node.label}: data is {data.type}, num_heads {count}; heads that divide 3 axes are needed")
    batch, length, total = data.shape
    apart = reshaped(node, data, (batch, length, count, total // count), "heads_apart")
    return data, node.apply(Transpose(axes=(0, 2, 1, 3)), [apart], "heads")


def _slice(node: Node, data: Symbol, begin: int, end: int, suffix: str) -> Symbol:
    return node.apply(SliceAxis(axis=3, begin=begin, end=end), [data], suffix)


def _pairs(node: Node, part: Symbol) -> Symbol:
    """(batch, heads, sequence, pairs, 2)."""
    half = part.shape[3] // 2
    if node.integer("interleaved", 0):
        return reshaped(node, part, (*part.shape[:3], half, 2), "pairs")
    halves = reshaped(node, part, (*part.shape[:3], 2, half), "halves")
    return node.apply(Transpose(axes=(0, 1, 2, 4, 3)), [halves], "pairs")


def _joined(node: Node, left: Symbol, right: Symbol, part: Symbol) -> Symbol:
    pairs = node.apply(Concat(dim=4), [left, right], "pairs_turned")
    if not node.integer("interleaved", 0):
        pairs = node.apply(Transpose(axes=(0, 1, 2, 4, 3)), [pairs], "halves_turned")
    return reshaped(node, pairs, part.shape, "turned")


def _angles(node: Node, index: int, name: str, pairs: int) -> Symbol:
    """(batch or 1, 1, sequence, pairs, 1), from rows of a cache or from an entry for each batch and position."""
    rows = node.symbol(index, name)
    if node.has(3):
        rows = node.apply(Take(axis=0), [rows, node.symbol(3, "positions")], f"{name}_rows")
    if rows.type.rank != 3 or rows.shape[2] < pairs:
        raise GraphError(f"{node.label}: {name} is {rows.type}; {pairs} numbers for each position are needed")
    if rows.shape[2] > pairs:
        rows = node.apply(SliceAxis(axis=2, begin=0, end=pairs), [rows], f"{name}_part")
    column = node.apply(ExpandDims(axis=1), [rows], f"{name}_heads")
    return node.apply(ExpandDims(axis=4), [column], f"{name}_column")


def _combined(
    node: Node,
    operator: BroadcastAdd | BroadcastSub,
    one: tuple[Symbol, Symbol],
    other: tuple[Symbol, Symbol],
    name: str,
) -> Symbol:
    products = [
        node.apply(BroadcastMul(), [value, angle], f"{name}_{role}")
        for role, (value, angle) in (("one", one), ("other", other))
    ]
    return node.apply(operator, products, name)
