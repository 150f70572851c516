"""Operators whose attributes are tensors, as in models that TVM imported without their constants.

Where such a tensor is known the operator is the static one; shapes are, whatever the data is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.relay.converters.arrangement import tile
from mrt.frontend.relay.converters.slicing import pad, strided_slice
from mrt.frontend.relay.converters.transform import broadcast_to, reshape
from mrt.frontend.relay.node import Converter, Node, converter
from mrt.frontend.relay.syntax import AttributeValue
from mrt.frontend.shared.folding import check_size
from mrt.frontend.shared.node import Value
from mrt.symbol import Array

_STATIC: dict[str, tuple[Converter, tuple[str, ...]]] = {
    "dyn.broadcast_to": (broadcast_to, ("shape",)),
    "dyn.reshape": (reshape, ("newshape",)),
    "dyn.strided_slice": (strided_slice, ("begin", "end", "strides")),
    "dyn.tile": (tile, ("reps",)),
}
"""The converter of the static operator, and the attributes that the inputs after the first stand for."""


@converter(*_STATIC)
def static(node: Node) -> Value:
    convert, names = _STATIC[node.kind]
    given: dict[str, AttributeValue] = {
        name: [*node.known_integers(index, name)] for index, name in enumerate(names, start=1)
    }
    # The attributes of the same names are leftovers, which nothing reads.
    return convert(replace(node, inputs=node.inputs[:1], attributes={**node.attributes, **given}))


@converter("dyn.nn.pad")
def dynamic_pad(node: Node) -> Value:
    """The second input holds the widths, one row for each axis, the third the value of the border."""
    widths = node.known(1, "pad_width")
    if widths.ndim != 2 or widths.shape[1] != 2 or widths.dtype.kind not in "iu":
        raise GraphError(
            f"{node.label}: pad_width is {widths.dtype}{widths.shape}; a row of two integers for each axis"
        )
    pairs: AttributeValue = [[int(before), int(after)] for before, after in widths]
    inputs = (node.input(0), node.input(2))
    return pad(replace(node, inputs=inputs, attributes={**node.attributes, "pad_width": pairs}))


@converter("scatter_elements")
def scatter_elements(node: Node) -> Array:
    """Known elements put in the place of others along one axis."""
    data, indices, updates = (node.known(index, role) for index, role in enumerate(("data", "indices", "updates")))
    if node.text("reduction") != "update":
        raise node.unsupported("attribute reduction", node.text("reduction"), "update")
    axis = node.axis(node.integer("axis"), data.ndim)
    size = data.shape[axis]
    check_size(node, data.shape)
    if indices.dtype.kind not in "iu" or (indices.size and not -size <= indices.min() <= indices.max() < size):
        raise GraphError(f"{node.label}: indices are no integers in [{-size}, {size})")
    result = data.copy()
    np.put_along_axis(result, indices % max(size, 1), updates, axis)
    return result
