"""Choosing among values, and elements by their indices."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from mrt.frontend.shared.elements import Places, along_axis, by_tuples
from mrt.frontend.torch.building import part, taken
from mrt.frontend.torch.node import Expression, Node, constant, converter, dtype_of, shape_of
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
    3. Other constant indices of neighbouring axes are places in these axes as one.
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
    if axes == [0, 1] and known[1] is None and _counts_rows(node, known[0]):
        places = node.cast(node.importer.env[given[1][1]], "int64")
        tuples = node.emit(relax.op.expand_dims(places, len(shape_of(places))))
        return relax.op.gather_nd(node.tensor("self"), tuples, 1)
    if len(found) < len(known) or axes != [*range(axes[0], axes[0] + len(axes))]:
        raise node.unsupported(
            "argument indices",
            f"{len(given)} tensors",
            "constants of neighbouring axes, or one behind all rows in order",
        )
    return _by_axes(node, axes[0], found)


def _counts_rows(node: Node, rows: Array | None) -> bool:
    """Whether a constant names the rows of the data in order, and the places beside it have an axis for them."""
    count = shape_of(node.tensor("self"))[0]
    places = shape_of(node.importer.env[node.arguments["indices"][1]])
    if rows is None or places[:1] != (count,) or rows.shape != (count, *(1,) * (len(places) - 1)):
        return False
    return np.array_equal(rows.reshape(-1), np.arange(count))


def _by_axes(node: Node, first: int, indices: list[Array]) -> Expression:
    """Elements at constant indices of the axes from `first` on."""
    data = node.tensor("self")
    shape = shape_of(data)
    rank = len(np.broadcast_shapes(*(value.shape for value in indices)))
    aligned = [value.reshape((1,) * (rank - value.ndim) + value.shape) for value in indices]
    varied = [axis for value in aligned for axis, size in enumerate(value.shape) if size > 1]
    if varied == sorted(set(varied)):
        for axis, value in enumerate(aligned, start=first):
            places = along_axis(node.label, (shape[axis],), 0, value.reshape(-1)).indices
            if not np.array_equal(places, np.arange(shape[axis])):
                data = node.emit(taken(data, axis, places))
        return _reshaped(data, node.shape)
    tuples = np.stack(np.broadcast_arrays(*indices), -1)
    places = by_tuples(node.label, shape[first:], tuples).indices
    merged = (*shape[:first], math.prod(shape[first : first + len(indices)]), *shape[first + len(indices) :])
    return _reshaped(node.emit(taken(_emitted(node, data, merged), first, places.reshape(-1))), node.shape)


@converter("index_put.default")
def index_put(node: Node) -> Expression:
    """One value at some places, the data at the others. Case 1: places where a tensor of truth values holds, which has
    the first axes of the data. Case 2: one computed place in every row of a matrix.
    """
    data, value = node.tensor("self"), node.operand("values", node.dtype)
    given = node.arguments["indices"]
    shape, rank = shape_of(data), len(shape_of(data))
    if math.prod(shape_of(value)) != 1 or node.flag("accumulate") or any(item is None for item in given):
        raise node.unsupported(
            "the values put there", f"of shape {shape_of(value)}", "one that replaces what was there"
        )
    if len(given) == 1 and dtype_of(node.importer.env[given[0]]) == "bool":
        holds = node.importer.env[given[0]]
        holds = _emitted(node, holds, (*shape_of(holds), *(1,) * (rank - len(shape_of(holds)))))
    elif len(given) == rank == 2 and _counts_rows(node, node.indices.get(given[0])):
        places = node.cast(node.importer.env[given[1]], "int64")
        holds = _marked(node, places, shape[1])
    else:
        raise node.unsupported("argument indices", f"{len(given)} tensors", "truth values, or a place in every row")
    return relax.op.where(holds, _emitted(node, value, (1,) * rank), data)


def _marked(node: Node, places: Expression, length: int) -> Expression:
    """Along a new last axis, whether a place is the one that is named, counted from the end where it is below 0."""
    column = node.emit(relax.op.expand_dims(places, len(shape_of(places))))
    counted = constant(np.arange(*node.made(length)), "int64")
    from_front = node.emit(relax.op.equal(column, counted))
    return node.emit(
        relax.op.logical_or(from_front, node.emit(relax.op.equal(column, constant(np.arange(-length, 0), "int64"))))
    )


@converter("gather.default")
def gather(node: Node) -> Expression:
    """Elements along an axis, an index for every one."""
    if node.arguments["index"] not in node.indices:
        return relax.op.gather_elements(node.tensor("self"), node.operand("index", "int64"), node.integer("dim"))
    places = _along_axis(node)
    data = _emitted(node, node.tensor("self"), places.merged)
    return _reshaped(node.emit(taken(data, places.first, places.indices.reshape(-1))), node.shape)


@converter("scatter.src", "scatter.value")
def scatter(node: Node) -> Expression:
    """The data with some elements replaced: what is put there follows the data, and every place takes its own."""
    places = _along_axis(node)
    if node.operator == "scatter.src":
        given = node.cast(node.tensor("src"), node.dtype)
        for axis, size in enumerate(places.result):
            given = given if shape_of(given)[axis] == size else node.emit(part(given, axis, 0, size))
        updates = _emitted(node, given, places.flat)
    else:
        value = constant(node.arguments["value"], node.dtype)
        updates = node.emit(relax.op.full(node.made(*places.flat), value, node.dtype))
    data = _emitted(node, node.tensor("self"), places.merged)
    joined = node.emit(relax.op.concat([data, updates], places.first))
    return _reshaped(node.emit(taken(joined, places.first, places.replaced)), node.shape)


def _along_axis(node: Node) -> Places:
    shape, indices = shape_of(node.tensor("self")), node.indices.get(node.arguments["index"])
    if indices is None:
        raise node.unsupported("argument index", "computed from the data", "a constant")
    if not shape or not indices.size:
        raise node.unsupported("argument index", f"of shape {indices.shape}", "one of an axis or more")
    return along_axis(node.label, shape, node.integer("dim") % len(shape), indices)


def _emitted(node: Node, data: Expression, shape: tuple[int, ...]) -> Expression:
    return data if shape_of(data) == shape else node.emit(relax.op.reshape(data, shape))


def _reshaped(data: Expression, shape: tuple[int, ...]) -> Expression:
    return data if shape_of(data) == shape else relax.op.reshape(data, shape)


def _elements(node: Node, axis: int, indices: Expression, computed: bool) -> Expression:
    """Constant indices may count from the end; computed ones count from the front."""
    data = node.tensor("self")
    return relax.op.take(data, indices, axis % len(shape_of(data)), mode="fast" if computed else "wrap")
