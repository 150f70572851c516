"""Operators that move values and change none: transposes, stacks and their like."""

from __future__ import annotations

import math

from mrt.frontend.shared.channels_first import transposed
from mrt.frontend.shared.shaping import reshaped
from mrt.frontend.tvm.node import TVMNode
from mrt.symbol import Symbol
from mrt.symbol.operators.transform import Concat, ExpandDims


def batch_flatten(node: TVMNode) -> Symbol:
    data = node.symbol(0)
    return reshaped(node, data, (data.shape[0], math.prod(data.shape[1:])))


def permute_dims(node: TVMNode) -> Symbol:
    data = node.symbol(0)
    given = node.integers("axes")
    axes = tuple(range(data.type.rank))[::-1] if given is None else given
    return transposed(node, data, [node.axis(axis, data.type.rank) for axis in axes])


def concat(node: TVMNode) -> Symbol:
    """Along an axis; where none is given, of vectors."""
    data = node.symbols(0, "part")
    if len(data) == 1:
        return data[0]
    given = node.optional_integer("axis")
    if given is None and data[0].type.rank != 1:
        raise node.unsupported("attribute axis", "not given", "an axis")
    return node.apply(Concat(dim=node.axis(given or 0, data[0].type.rank)), data)


def stack(node: TVMNode) -> Symbol:
    """Concat along a new axis."""
    data = node.symbols(0, "part")
    axis = node.axis(node.integer("axis"), data[0].type.rank + 1)
    parts = [node.apply(ExpandDims(axis=axis), [part], f"part{index}") for index, part in enumerate(data)]
    return node.apply(Concat(dim=axis), parts) if len(parts) > 1 else parts[0]
