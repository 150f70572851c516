"""Operators that move values and change none: RESHAPE, TRANSPOSE, CONCATENATION and their like."""

from __future__ import annotations

import math

from mrt.errors import GraphError
from mrt.frontend.shared.channels_first import transposed
from mrt.frontend.shared.shaping import broadcast, expanded, reshaped
from mrt.frontend.tflite.activation import activated
from mrt.frontend.tflite.node import Node, converter
from mrt.symbol import Symbol
from mrt.symbol.operators.transform import Concat, ExpandDims, Squeeze


@converter("RESHAPE")
def reshape(node: Node) -> Symbol:
    """To the shape that the second input names, else the options; one size may be -1, which takes what is left."""
    data = node.symbol(0)
    target = node.known_integers(1, "shape") if node.has(1) else node.options("ReshapeOptions").integers("NewShape")
    if min(target, default=0) < -1 or target.count(-1) > 1:
        raise GraphError(f"{node.label}: the target shape is {target}; sizes and at most one -1 are needed")
    rest = math.prod(size for size in target if size != -1)
    shape = tuple(data.type.size // max(rest, 1) if size == -1 else size for size in target)
    if math.prod(shape) != data.type.size:
        raise GraphError(f"{node.label}: {data.type} does not fit the target shape {target}")
    return reshaped(node, data, shape)


@converter("SQUEEZE")
def squeeze(node: Node) -> Symbol:
    """Takes axes of size 1 away, every one where none is named."""
    data = node.symbol(0)
    given = {node.axis(axis, data.type.rank) for axis in node.options("SqueezeOptions").integers("SqueezeDims")}
    axes = given or {axis for axis, size in enumerate(data.shape) if size == 1}
    return node.apply(Squeeze(axis=tuple(sorted(axes))), [data]) if axes else data


@converter("EXPAND_DIMS")
def expand_dims(node: Node) -> Symbol:
    data = node.symbol(0)
    return expanded(node, data, [node.known_axis(1, data.type.rank + 1)])


@converter("TRANSPOSE")
def transpose(node: Node) -> Symbol:
    data = node.symbol(0)
    order = [node.axis(axis, data.type.rank) for axis in node.known_integers(1, "perm")]
    if sorted(order) != list(range(data.type.rank)):
        raise GraphError(f"{node.label}: perm is {order} for {data.type}; each axis once is needed")
    return transposed(node, data, order)


@converter("CONCATENATION")
def concatenation(node: Node) -> Symbol:
    options, data = node.options("ConcatenationOptions"), node.all_symbols()
    axis = node.axis(options.integer("Axis"), data[0].type.rank)

    def make(suffix: str) -> Symbol:
        return node.apply(Concat(dim=axis), data, suffix) if len(data) > 1 else data[0]

    return activated(node, options, make)


@converter("PACK")
def pack(node: Node) -> Symbol:
    """Tensors of one shape along a new axis."""
    options, data = node.options("PackOptions"), node.all_symbols()
    axis = node.axis(options.integer("Axis"), data[0].type.rank + 1)
    if len(data) == 1:
        return node.apply(ExpandDims(axis=axis), data)
    parts = [node.apply(ExpandDims(axis=axis), [part], f"part{index}") for index, part in enumerate(data)]
    return node.apply(Concat(dim=axis), parts)


@converter("BROADCAST_TO")
def broadcast_to(node: Node) -> Symbol:
    """The input as it is where its shape is the target, else times ones."""
    data, shape = node.symbol(0), node.known_integers(1, "shape")
    aligned = (1,) * (len(shape) - data.type.rank) + data.shape
    if len(aligned) != len(shape) or any(own not in (1, size) for own, size in zip(aligned, shape, strict=True)):
        raise GraphError(f"{node.label}: {data.type} does not broadcast to {shape}")
    return broadcast(node, data, shape)
