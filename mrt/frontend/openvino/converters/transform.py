"""Operators that move values and change none: Reshape, Transpose, Concat and their like."""

from __future__ import annotations

import math

from mrt.errors import GraphError
from mrt.frontend.openvino.node import Node, converter
from mrt.frontend.shared.channels_first import transposed
from mrt.frontend.shared.shaping import broadcast, expanded, reshaped
from mrt.frontend.shared.shuffling import shuffled
from mrt.symbol import Symbol
from mrt.symbol.operators.arrangement import DepthToSpace, SpaceToDepth, Tile
from mrt.symbol.operators.transform import Concat, Squeeze


@converter("Reshape")
def reshape(node: Node) -> Symbol:
    """With special_zero a target of 0 copies the input's size; -1 takes what is left."""
    data, target = node.symbol(0), node.known_integers(1, "shape")
    if min(target, default=0) < -1 or target.count(-1) > 1:
        raise GraphError(f"{node.label}: the target shape is {target}; sizes and at most one -1 are needed")
    if node.flag("special_zero", False):
        target = tuple(data.shape[axis] if size == 0 else size for axis, size in enumerate(target))
    rest = math.prod(size for size in target if size != -1)
    shape = tuple(data.type.size // max(rest, 1) if size == -1 else size for size in target)
    if math.prod(shape) != data.type.size:
        raise GraphError(f"{node.label}: {data.type} does not fit the target shape {target}")
    return reshaped(node, data, shape)


@converter("Squeeze")
def squeeze(node: Node) -> Symbol:
    """Takes axes of size 1 away, every one where none is named."""
    data = node.symbol(0)
    axes = node.known_axes(1, data.type.rank) if node.has(1) else ()
    axes = axes or tuple(axis for axis, size in enumerate(data.shape) if size == 1)
    return node.apply(Squeeze(axis=axes), [data]) if axes else data


@converter("Unsqueeze")
def unsqueeze(node: Node) -> Symbol:
    """New axes of size 1, counted in the result."""
    data, given = node.symbol(0), node.known_integers(1, "axes")
    return expanded(node, data, node.known_axes(1, data.type.rank + len(given)))


@converter("Transpose")
def transpose(node: Node) -> Symbol:
    """The axes in the order named, reversed where none is."""
    data, order = node.symbol(0), node.known_integers(1, "order")
    rank = data.type.rank
    axes = [node.axis(axis, rank) for axis in order] if order else list(range(rank))[::-1]
    if sorted(axes) != list(range(rank)):
        raise GraphError(f"{node.label}: the order is {order} for {data.type}; each axis once is needed")
    return transposed(node, data, axes)


@converter("Concat")
def concat(node: Node) -> Symbol:
    data = node.all_symbols()
    if len(data) == 1:
        return data[0]
    return node.apply(Concat(dim=node.axis(node.integer("axis"), data[0].type.rank)), data)


@converter("Broadcast")
def broadcast_(node: Node) -> Symbol:
    """By NumPy's rule, or in both directions, to the shape that the second input names."""
    data, target, mode = node.symbol(0), node.known_integers(1, "target_shape"), node.text("mode", "numpy")
    if mode not in ("numpy", "bidirectional"):
        raise node.unsupported("attribute mode", mode, "numpy or bidirectional")
    rank = max(len(target), data.type.rank)
    own, wanted = ((1,) * (rank - len(shape)) + tuple(shape) for shape in (data.shape, target))
    if any(a != b and 1 not in (a, b) for a, b in zip(own, wanted, strict=True)):
        raise GraphError(f"{node.label}: {data.type} does not broadcast with {target}")
    return broadcast(node, data, [max(a, b) for a, b in zip(own, wanted, strict=True)])


@converter("Tile")
def tile(node: Node) -> Symbol:
    data, repeats = node.symbol(0), node.known_integers(1, "repeats")
    if min(repeats, default=1) < 1:
        raise GraphError(f"{node.label}: repeats are {repeats}; positive ones are needed")
    return node.apply(Tile(reps=repeats), [data]) if any(count != 1 for count in repeats) else data


@converter("DepthToSpace")
def depth_to_space(node: Node) -> Symbol:
    """Mode blocks_first is MXNet's; depth_first, where the channels come first, is a shuffle of its own."""
    data, size, mode = node.symbol(0), node.integer("block_size"), node.text("mode")
    if mode == "blocks_first":
        return node.apply(DepthToSpace(block_size=size), [data])
    if mode != "depth_first":
        raise node.unsupported("attribute mode", mode, "blocks_first or depth_first")
    return shuffled(node, data, size)


@converter("SpaceToDepth")
def space_to_depth(node: Node) -> Symbol:
    mode = node.text("mode")
    if mode != "blocks_first":
        raise node.unsupported("attribute mode", mode, "blocks_first")
    return node.apply(SpaceToDepth(block_size=node.integer("block_size")), [node.symbol(0)])
