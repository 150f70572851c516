"""Operators that move values and change none: reshape, permute_dims, concat and their like."""

from __future__ import annotations

import math

from mrt.errors import GraphError
from mrt.frontend.relax.converters.layouts import transposed
from mrt.frontend.relax.node import Node, converter, static_sizes
from mrt.frontend.shaping import broadcast, expanded, reshaped
from mrt.symbol import Symbol
from mrt.symbol.operators.transform import Concat, ExpandDims, Squeeze


@converter("reshape")
def reshape(node: Node) -> Symbol:
    data, target = node.symbol(0), node.known_integers(1, "shape")
    if math.prod(target) != data.type.size:
        raise GraphError(f"{node.label}: {data.type} does not fit the target shape {target}")
    return reshaped(node, data, target)


@converter("flatten")
def flatten(node: Node) -> Symbol:
    """One axis that holds everything, the batch included."""
    data = node.symbol(0)
    return reshaped(node, data, (data.type.size,))


@converter("nn.batch_flatten")
def batch_flatten(node: Node) -> Symbol:
    data = node.symbol(0)
    return reshaped(node, data, (data.shape[0], math.prod(data.shape[1:])))


@converter("permute_dims")
def permute_dims(node: Node) -> Symbol:
    data = node.symbol(0)
    given = node.integers("axes")
    axes = tuple(range(data.type.rank))[::-1] if given is None else given
    return transposed(node, data, [node.axis(axis, data.type.rank) for axis in axes])


@converter("expand_dims")
def expand_dims(node: Node) -> Symbol:
    """New axes of size 1, counted in the result."""
    data, given = node.symbol(0), node.sizes("axis")
    return expanded(node, data, node.axes("axis", data.type.rank + len(given)))


@converter("squeeze")
def squeeze(node: Node) -> Symbol:
    """Takes axes of size 1 away: those named, else every one, but never a batch that was dynamic."""
    data = node.symbol(0)
    if node.integers("axis") is not None:
        axes = node.axes("axis", data.type.rank)
    else:
        axes = tuple(axis for axis, size in enumerate(data.shape) if size == 1)
        result = static_sizes(node.call.ty.shape)
        if axes[:1] == (0,) and result is not None and len(result) == data.type.rank - len(axes) + 1:
            axes = axes[1:]
    axes = tuple(axis for axis in axes if data.shape[axis] == 1)
    return node.apply(Squeeze(axis=axes), [data]) if axes else data


@converter("broadcast_to")
def broadcast_to(node: Node) -> Symbol:
    """The input as it is where its shape is the target, else times ones."""
    return broadcast(node, node.symbol(0), node.known_integers(1, "shape"))


@converter("concat")
def concat(node: Node) -> Symbol:
    """Along an axis; where none is given, of vectors."""
    data = node.symbols(0, "part")
    if len(data) == 1:
        return data[0]
    given = node.call.attrs.axis
    if given is None and data[0].type.rank != 1:
        raise node.unsupported("attribute axis", "not given", "an axis")
    return node.apply(Concat(dim=node.axis(int(given or 0), data[0].type.rank)), data)


@converter("stack")
def stack(node: Node) -> Symbol:
    """Concat along a new axis."""
    data = node.symbols(0, "part")
    axis = node.axis(node.integer("axis"), data[0].type.rank + 1)
    parts = [node.apply(ExpandDims(axis=axis), [part], f"part{index}") for index, part in enumerate(data)]
    return node.apply(Concat(dim=axis), parts) if len(parts) > 1 else parts[0]
