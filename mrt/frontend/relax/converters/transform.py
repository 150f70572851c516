"""Operators that move values and change none: reshape, permute_dims, concat and their like."""

from __future__ import annotations

import math

from mrt.errors import GraphError
from mrt.frontend.relax.node import Node, converter, static_sizes
from mrt.frontend.shared.shaping import broadcast, expanded, reshaped
from mrt.frontend.tvm.transform import batch_flatten, concat, permute_dims, stack
from mrt.symbol import Symbol
from mrt.symbol.operators.transform import Squeeze

converter("nn.batch_flatten")(batch_flatten)
converter("permute_dims")(permute_dims)
converter("concat")(concat)
converter("stack")(stack)


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
