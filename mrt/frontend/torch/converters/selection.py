"""Choosing among values, and elements by their indices."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from mrt.frontend.shared.elements import along_axis, in_a_row
from mrt.frontend.torch.building import emitted, reshaped, taken
from mrt.frontend.torch.node import Expression, Node, constant, converter, shape_of
from mrt.frontend.torch.placing import counts_rows, places_along_axis
from mrt.symbol import Array


@converter("where.self")
def where(node: Node) -> Expression:
    return relax.op.where(
        node.operand("condition", "bool"), node.operand("self", node.dtype), node.operand("other", node.dtype)
    )


@converter("embedding.default")
def embedding(node: Node) -> Expression:
    return relax.op.take(node.tensor("weight"), node.tensor("indices"), 0)


@converter("one_hot.default")
def one_hot(node: Node) -> Expression:
    """1 at the place that an index names along a new last axis, 0 elsewhere."""
    indices = node.emit(relax.op.expand_dims(node.operand("self", "int64"), len(node.shape) - 1))
    places = constant(np.arange(*node.made(node.shape[-1])), "int64")
    return node.cast(node.emit(relax.op.equal(indices, places)), node.dtype)


@converter("index_select.default")
def index_select(node: Node) -> Expression:
    return _elements(node, node.integer("dim"), node.tensor("index"), node.depends("index"))


@converter("index.Tensor")
def index(node: Node) -> Expression:
    """Elements by index tensors of some axes; whole axes are None.

    1. Indices of one axis may be computed.
    2. Constant indices of several axes of which each varies along axes of the result of its own, such as a column
       beside a row, are taken axis by axis. Those that are all of an axis in order leave it as it is, the batch too.
    3. Other constant indices are places in these axes as one, which come first where others lie between them.
    4. Rows in order beside computed places are one place, or several, of every sample.
    """
    given = [(axis, item) for axis, item in enumerate(node.arguments["indices"]) if item is not None]
    if not all(str(item.meta["val"].dtype).startswith("torch.int") for _, item in given):
        raise node.unsupported("argument indices", "truth values that the data decide", "integers")
    if len(given) == 1:
        axis, item = given[0]
        return _elements(node, axis, node.importer.env[item], not node.is_known(item))
    axes = [axis for axis, _ in given]
    known = [node.indices.get(item) for _, item in given]
    found = [value for value in known if value is not None]
    if axes == [0, 1] and known[1] is None and counts_rows(node, known[0], given[1][1]):
        places = node.cast(node.importer.env[given[1][1]], "int64")
        tuples = node.emit(relax.op.expand_dims(places, len(shape_of(places))))
        return relax.op.gather_nd(node.tensor("self"), tuples, 1)
    if len(found) < len(known):
        needed = "constants, one tensor, or one behind all rows in order"
        raise node.unsupported("argument indices", f"{len(given)} tensors", needed)
    data = node.tensor("self")
    if axes != [*range(axes[0], axes[0] + len(axes))]:
        others = [axis for axis in range(len(shape_of(data))) if axis not in axes]
        return _by_axes(node, node.emit(relax.op.permute_dims(data, [*axes, *others])), 0, found)
    return _by_axes(node, data, axes[0], found)


def _by_axes(node: Node, data: Expression, first: int, indices: list[Array]) -> Expression:
    """Elements at constant indices of the axes from `first` on."""
    shape = shape_of(data)
    rank = len(np.broadcast_shapes(*(value.shape for value in indices)))
    aligned = [value.reshape((1,) * (rank - value.ndim) + value.shape) for value in indices]
    varied = [axis for value in aligned for axis, size in enumerate(value.shape) if size > 1]
    if varied == sorted(set(varied)):
        for axis, value in enumerate(aligned, start=first):
            places = along_axis(node.label, (shape[axis],), 0, value.reshape(-1)).indices
            if not np.array_equal(places, np.arange(shape[axis])):
                data = node.emit(taken(data, axis, places))
        return reshaped(data, node.shape)
    places = in_a_row(node.label, shape[first : first + len(indices)], indices)
    merged = (*shape[:first], math.prod(shape[first : first + len(indices)]), *shape[first + len(indices) :])
    return reshaped(node.emit(taken(emitted(node, data, merged), first, places.reshape(-1))), node.shape)


@converter("gather.default")
def gather(node: Node) -> Expression:
    """Elements along an axis, an index for every one."""
    if node.arguments["index"] not in node.indices:
        return relax.op.gather_elements(node.tensor("self"), node.operand("index", "int64"), node.integer("dim"))
    places = places_along_axis(node)
    data = emitted(node, node.tensor("self"), places.merged)
    return reshaped(node.emit(taken(data, places.first, places.indices.reshape(-1))), node.shape)


def _elements(node: Node, axis: int, indices: Expression, computed: bool) -> Expression:
    """Constant indices may count from the end; computed ones count from the front."""
    data = node.tensor("self")
    return relax.op.take(data, indices, axis % len(shape_of(data)), mode="fast" if computed else "wrap")
