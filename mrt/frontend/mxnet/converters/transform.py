"""Operators that move, cut, repeat or make values, where MXNet's own form differs from the record's."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.mxnet.node import Node, converter
from mrt.frontend.shared.selection import hot_rows
from mrt.frontend.shared.shaping import broadcast, reshaped
from mrt.frontend.shared.slicing import sliced
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.transform import Concat, ExpandDims, Reshape, SliceAxis, Squeeze


@converter("Reshape", "reshape")
def reshape(node: Node) -> Symbol:
    """MXNet's codes; files of its beginnings say target_shape instead, in which one 0 takes what is left, after a
    first axis that keep_highest copies.
    """
    data = node.only_symbol()
    if node.integers("shape", ()):
        return node.apply(node.record(), [data])
    target = list(node.integers("target_shape", ()))
    kept = target[:1] if node.flag("keep_highest") else []
    rest = target[len(kept) :]
    if not target or min(rest, default=0) < 0 or rest.count(0) > 1:
        raise GraphError(f"{node.label}: neither attribute shape nor target_shape says a shape")
    return node.apply(Reshape(shape=(*(0 for _ in kept), *(size or -1 for size in rest))), [data])


@converter("reshape_like")
def reshape_like(node: Node) -> Symbol:
    _refuse_ranges(node, "lhs_begin", "lhs_end", "rhs_begin", "rhs_end")
    return reshaped(node, node.symbol(0), node.shape(1))


@converter("squeeze")
def squeeze(node: Node) -> Symbol:
    """Where no axis is left the result has one of length 1, since MXNet knows no rank 0."""
    data, operator = node.only_symbol(), node.record()
    if isinstance(operator, Squeeze) and data.shape and len(operator.dropped(data.shape)) == data.type.rank:
        return node.apply(Reshape(shape=(1,)), [data])
    return node.apply(operator, [data])


@converter("SliceChannel", "split")
def split(node: Node) -> Mapping[int, Symbol]:
    """Each output in use as a slice, without its axis where squeeze_axis says so."""
    data, count = node.only_symbol(), node.integer("num_outputs")
    axis = node.axis(node.integer("axis", 1), data.type.rank)
    if count < 1 or data.shape[axis] % count or max(node.used, default=0) >= count:
        raise GraphError(
            f"{node.label}: outputs {[*node.used]} of {count} of {data.type} along axis {axis} do not all exist"
        )
    length, squeezes = data.shape[axis] // count, node.flag("squeeze_axis")
    if squeezes and length != 1:
        raise GraphError(f"{node.label}: outputs are {length} long along axis {axis}; 1 is needed for squeeze_axis")

    def part(place: int) -> Symbol:
        end = (place + 1) * length if place + 1 < count else None
        cut = SliceAxis(axis=axis, begin=place * length, end=end)
        if not squeezes:
            return node.apply(cut, [data], f"output{place}")
        return node.apply(Squeeze(axis=(axis,)), [node.apply(cut, [data], f"slice{place}")], f"output{place}")

    return {place: part(place) for place in node.used}


@converter("Crop")
def crop(node: Node) -> Symbol:
    """Height and width of h_w, or of the second input where there is one: from offset on, or from the middle."""
    data = node.symbol(0)
    target = node.shape(1)[2:] if node.has(1) else node.integers("h_w", (0, 0))
    if data.type.rank != 4 or len(target) != 2 or min(target) < 1:
        raise GraphError(f"{node.label}: {data.type} to height and width {target}; rank 4 and two lengths are needed")
    free = [size - wanted for size, wanted in zip(data.shape[2:], target, strict=True)]
    begins = [n // 2 for n in free] if node.flag("center_crop") else [*node.integers("offset", (0, 0))]
    if len(begins) != 2 or any(not 0 <= begin <= n for begin, n in zip(begins, free, strict=True)):
        raise GraphError(f"{node.label}: {target} from {begins} on does not lie inside {data.type}")
    parts = {
        axis: slice(begin, begin + size) for axis, (begin, size) in enumerate(zip(begins, target, strict=True), start=2)
    }
    return sliced(node, data, parts)


@converter("reverse", "flip")
def reverse(node: Node) -> Symbol:
    data = node.only_symbol()
    axes = {node.axis(axis, data.type.rank) for axis in node.integers("axis")}
    return sliced(node, data, {axis: slice(None, None, -1) for axis in axes})


@converter("stack")
def stack(node: Node) -> Symbol:
    data = node.symbols()
    if not data:
        raise GraphError(f"{node.label}: has no inputs; at least one is needed")
    axis = node.axis(node.integer("axis", 0), data[0].type.rank + 1)
    rows = [node.apply(ExpandDims(axis=axis), [x], f"arg{place}") for place, x in enumerate(data)]
    return node.apply(Concat(dim=axis), rows)


@converter("broadcast_to")
def broadcast_to(node: Node) -> Symbol:
    """A 0 in the shape copies the axis."""
    data, target = node.only_symbol(), node.integers("shape")
    if len(target) != data.type.rank:
        raise GraphError(f"{node.label}: {data.type} to shape {target}; equal ranks are needed")
    return _broadcast(node, data, tuple(new or old for new, old in zip(target, data.shape, strict=True)))


@converter("broadcast_axis", "broadcast_axes")
def broadcast_axis(node: Node) -> Symbol:
    data, axes, sizes = node.only_symbol(), node.integers("axis", ()), node.integers("size", ())
    if len(axes) != len(sizes):
        raise GraphError(f"{node.label}: axis {axes} and size {sizes} must have one length")
    shape = list(data.shape)
    for axis, size in zip(axes, sizes, strict=True):
        shape[node.axis(axis, data.type.rank)] = size
    return _broadcast(node, data, tuple(shape))


@converter("broadcast_like")
def broadcast_like(node: Node) -> Symbol:
    _refuse_ranges(node, "lhs_axes", "rhs_axes")
    data, target = node.symbol(0), node.shape(1)
    if len(target) != data.type.rank:
        raise GraphError(f"{node.label}: {data.type} to shape {target}; equal ranks are needed")
    return _broadcast(node, data, target)


def _broadcast(node: Node, data: Symbol, shape: tuple[int, ...]) -> Symbol:
    if any(old not in (1, new) for old, new in zip(data.shape, shape, strict=True)):
        raise GraphError(f"{node.label}: {data.type} does not broadcast to {shape}")
    return broadcast(node, data, shape)


def _refuse_ranges(node: Node, *names: str) -> None:
    for name in names:
        if node.text(name, "None") != "None":
            raise node.unsupported(f"attribute {name}", node.text(name, ""), "None")


@converter("zeros_like", "ones_like")
def filled_like(node: Node) -> Array:
    shape = node.made(node.shape(0))
    return np.full(shape, float(node.operator == "ones_like"), node.input(0).dtype)


@converter("_zeros", "_ones", "_full")
def filled(node: Node) -> Array:
    """A constant of attributes. A shape that is not known is refused, but for the zeros of any batch, of which a
    recurrent layer's states begin: they have no elements.
    """
    number = node.number("value") if node.operator == "_full" else float(node.operator == "_ones")
    shape = node.integers("shape")
    if node.operator == "_zeros" and len(shape) == 3 and shape[1] == 0 and node.made((shape[0], shape[2])):
        return np.zeros(shape, np.float32)
    return np.full(node.made(shape), number, np.float32)


@converter("one_hot")
def one_hot(node: Node) -> Symbol:
    off, on = node.number("off_value", 0.0), node.number("on_value", 1.0)
    return hot_rows(node, node.only_symbol(), node.integer("depth"), off, on)
