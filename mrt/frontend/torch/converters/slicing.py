"""Parts of a tensor, and borders around it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from mrt.frontend.shared.elements import Places
from mrt.frontend.torch.building import part
from mrt.frontend.torch.node import Expression, Node, converter, importers_own, shape_of
from mrt.frontend.torch.placing import replaced

importers_own("slice.Tensor", "split.Tensor", "split_with_sizes.default", "getitem")


@converter("select.int")
def select(node: Node) -> Expression:
    """One element of an axis, which goes away."""
    data = node.tensor("self")
    axis = node.integer("dim") % len(shape_of(data))
    index = node.integer("index") % shape_of(data)[axis]
    return relax.op.squeeze(node.emit(part(data, axis, index, index + 1)), [axis])


@converter("unbind.int")
def unbind(node: Node) -> tuple[Expression, ...]:
    data = node.tensor("self")
    axis = node.integer("dim") % len(shape_of(data))
    return tuple(
        node.emit(relax.op.squeeze(node.emit(part(data, axis, place, place + 1)), [axis]))
        for place in range(shape_of(data)[axis])
    )


@converter("constant_pad_nd.default")
def constant_pad(node: Node) -> Expression:
    return _padded(node, "constant", node.number("value"))


@converter("pad.default")
def pad(node: Node) -> Expression:
    mode = node.arguments["mode"]
    value = node.number("value") if node.has("value") else 0.0
    return _circular(node) if mode == "circular" else _padded(node, mode, value)


def _widths(node: Node, rank: int) -> list[tuple[int, int]]:
    """Widths before and after each axis; PyTorch names them from the last axis on."""
    given = node.integers("pad")
    pairs = [*zip(given[::2], given[1::2], strict=True)]
    return [(0, 0)] * (rank - len(pairs)) + pairs[::-1]


def _padded(node: Node, mode: str, value: float) -> Expression:
    """Negative widths cut off."""
    data = node.tensor("self")
    widths = _widths(node, len(shape_of(data)))
    for axis, (size, (before, after)) in enumerate(zip(shape_of(data), widths, strict=True)):
        if before < 0 or after < 0:
            data = node.emit(part(data, axis, max(-before, 0), size - max(-after, 0)))
    border = [max(width, 0) for pair in widths for width in pair]
    return relax.op.nn.pad(data, border, mode, value) if any(border) else data


def _circular(node: Node) -> Expression:
    """Each border is what lies at the other end."""
    data = node.tensor("self")
    for axis, (before, after) in enumerate(_widths(node, len(shape_of(data)))):
        size = shape_of(data)[axis]
        if before < 0 or after < 0:
            raise node.unsupported("argument pad", node.integers("pad"), "no negative entry in mode circular")
        ends: Sequence[Expression] = [
            *([node.emit(part(data, axis, size - before, size))] if before else []),
            data,
            *([node.emit(part(data, axis, 0, after))] if after else []),
        ]
        data = node.emit(relax.op.concat(ends, axis)) if len(ends) > 1 else data
    return data


@converter("slice_scatter.default")
def slice_scatter(node: Node) -> Expression:
    """The data with a part of one axis replaced, as y[a:b] = source makes it."""
    data, axis = node.tensor("self"), node.integer("dim") % len(node.shape)
    size, step = node.shape[axis], node.integer("step")
    begin, end = (int(node.arguments[name]) if node.has(name) else None for name in ("start", "end"))
    if step != 1:
        places = np.arange(*slice(begin, end, step).indices(size))
        return replaced(node, Places(node.shape, axis, axis + 1, places), node.cast(node.tensor("src"), node.dtype))
    return _replaced(node, data, node.tensor("src"), axis, *slice(begin, end).indices(size)[:2])


@converter("select_scatter.default")
def select_scatter(node: Node) -> Expression:
    """The data with one element of an axis replaced, as y[i] = source makes it."""
    axis = node.integer("dim") % len(node.shape)
    index = node.integer("index") % node.shape[axis]
    source = node.emit(relax.op.expand_dims(node.tensor("src"), axis))
    return _replaced(node, node.tensor("self"), source, axis, index, index + 1)


def _replaced(node: Node, data: Expression, source: Expression, axis: int, begin: int, end: int) -> Expression:
    size = shape_of(data)[axis]
    pieces = [
        *([node.emit(part(data, axis, 0, begin))] if begin > 0 else []),
        *([node.cast(source, node.dtype)] if begin < end else []),
        *([node.emit(part(data, axis, max(begin, end), size))] if max(begin, end) < size else []),
    ]
    return relax.op.concat(pieces, axis) if len(pieces) > 1 else pieces[0]
