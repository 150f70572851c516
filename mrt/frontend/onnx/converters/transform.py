"""Operators that move values and change none: Reshape, Transpose, Concat and their like."""

from __future__ import annotations

import math

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shared.arithmetic import of_one_dtype
from mrt.frontend.shared.shaping import broadcast, expanded, reshaped
from mrt.symbol import Symbol
from mrt.symbol.operators.transform import Concat, Squeeze, Transpose


@converter("Reshape")
def reshape(node: Node) -> Symbol:
    """A target of 0 copies the input's size, unless allowzero says that it is one; -1 takes what is left."""
    data, target = node.symbol(0), node.given_integers(1, "shape")
    if target is None or min(target, default=0) < -1 or target.count(-1) > 1:
        raise GraphError(f"{node.label}: the target shape is {target}; sizes and at most one -1 are needed")
    if not node.integer("allowzero", 0):
        if any(size == 0 and axis >= data.type.rank for axis, size in enumerate(target)):
            raise GraphError(f"{node.label}: the target shape {target} copies an axis that {data.type} lacks")
        target = tuple(data.shape[axis] if size == 0 else size for axis, size in enumerate(target))
    rest = math.prod(size for size in target if size != -1)
    shape = tuple(data.type.size // max(rest, 1) if size == -1 else size for size in target)
    if math.prod(shape) != data.type.size:
        raise GraphError(f"{node.label}: {data.type} does not fit the target shape {target}")
    return reshaped(node, data, shape)


@converter("Flatten")
def flatten(node: Node) -> Symbol:
    """Two axes: those before `axis`, and the others."""
    data, axis = node.symbol(0), node.integer("axis", 1)
    if not -data.type.rank <= axis <= data.type.rank:
        raise GraphError(f"{node.label}: attribute axis is {axis}, data {data.type}")
    axis = axis + data.type.rank if axis < 0 else axis
    return reshaped(node, data, (math.prod(data.shape[:axis]), math.prod(data.shape[axis:])))


@converter("Transpose")
def transpose(node: Node) -> Symbol:
    data = node.symbol(0)
    axes = node.integers("perm") or tuple(reversed(range(data.type.rank)))
    return node.apply(Transpose(axes=axes), [data])


@converter("Unsqueeze")
def unsqueeze(node: Node) -> Symbol:
    """New axes of size 1, counted in the result."""
    data, axes = node.symbol(0), axes_of(node, input_since=13)
    if axes is None:
        raise GraphError(f"{node.label}: states no axes; axes are needed")
    rank = data.type.rank + len(axes)
    places = sorted({node.axis(axis, rank) for axis in axes})
    if len(places) != len(axes):
        raise GraphError(f"{node.label}: axes {axes} name an axis twice")
    return expanded(node, data, places)


@converter("Squeeze")
def squeeze(node: Node) -> Symbol:
    """Takes axes of size 1 away, every one where none is named."""
    data, axes = node.symbol(0), axes_of(node, input_since=13)
    if axes is None:
        axes = tuple(axis for axis, size in enumerate(data.shape) if size == 1)
    if not axes:
        return data
    return node.apply(Squeeze(axis=tuple(sorted(node.axis(axis, data.type.rank) for axis in axes))), [data])


@converter("Expand")
def expand(node: Node) -> Symbol:
    """The input broadcast against a shape: as it is where that adds nothing, else times ones."""
    data, target = node.symbol(0), node.given_integers(1, "shape")
    try:
        shape = np.broadcast_shapes(data.shape, target or ())
    except ValueError:
        raise GraphError(f"{node.label}: {data.type} does not broadcast with {target}") from None
    return broadcast(node, data, tuple(int(size) for size in shape))


@converter("Concat")
def concat(node: Node) -> Symbol:
    data = of_one_dtype(node, node.symbols())
    if len(data) == 1:
        return data[0]
    axis = node.integer("axis", 1)
    return node.apply(Concat(dim=node.axis(axis, data[0].type.rank)), data)


def axes_of(node: Node, input_since: int) -> tuple[int, ...] | None:
    """The axes of a node: an attribute first, from opset `input_since` on the second input; None where not given."""
    return node.integers("axes") if node.opset < input_since else node.given_integers(1, "axes")
