"""Elements put at constant places, and where a mask holds: scatter, index_put, index_add and their like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from mrt.frontend.shared.elements import Places, in_a_row
from mrt.frontend.torch.building import emitted
from mrt.frontend.torch.node import Expression, Node, converter, shape_of
from mrt.frontend.torch.placing import (
    combined,
    counts_rows,
    marked,
    places_along_axis,
    places_of_axis,
    replaced,
    updates_of,
)

_REDUCTIONS: dict[str, tuple[Callable[..., Expression], float | None]] = {
    "sum": (relax.op.add, 0.0),
    "add": (relax.op.add, 0.0),
    "prod": (relax.op.multiply, 1.0),
    "multiply": (relax.op.multiply, 1.0),
    "amax": (relax.op.maximum, None),
    "amin": (relax.op.minimum, None),
}
"""How what is put at a place is combined with what is there, and what changes nothing."""


@converter("scatter.src", "scatter.value")
def scatter(node: Node) -> Expression:
    places = places_along_axis(node)
    return replaced(node, places, updates_of(node, places, "src", "value"))


@converter("scatter_add.default", "scatter_reduce.two", "scatter.reduce", "scatter.value_reduce")
def scatter_reduce(node: Node) -> Expression:
    if node.arguments.get("include_self") is False:
        raise node.unsupported("argument include_self", False, "True")
    kind = node.arguments.get("reduce", "sum")
    if kind not in _REDUCTIONS:
        raise node.unsupported("argument reduce", kind, f"one of {[*_REDUCTIONS]}")
    places = places_along_axis(node)
    return combined(node, places, updates_of(node, places, "src", "value"), *_REDUCTIONS[kind])


@converter("index_copy.default", "index_fill.int_Scalar", "index_fill.int_Tensor")
def index_copy(node: Node) -> Expression:
    """Case 1: one computed place, as caches are written. Case 2: constant ones."""
    if node.operator == "index_copy.default" and _is_one_place(node, node.arguments["index"]):
        return _written(node, node.integer("dim") % len(node.shape), node.arguments["index"], "source")
    places = places_of_axis(node)
    name = "source" if "source" in node.arguments else "value"
    if node.operator == "index_fill.int_Scalar":
        return replaced(node, places, updates_of(node, places, "source", "value"))
    return replaced(node, places, updates_of(node, places, name, name))


@converter("index_add.default")
def index_add(node: Node) -> Expression:
    places = places_of_axis(node)
    updates = updates_of(node, places, "source", "source")
    if node.arguments["alpha"] != 1:
        updates = node.emit(relax.op.multiply(updates, node.operand("alpha", node.dtype)))
    return combined(node, places, updates, *_REDUCTIONS["sum"])


@converter("index_put.default")
def index_put(node: Node) -> Expression:
    """What is put where a mask holds, or at places.

    1. A mask of truth values of the first axes, and one value: a choice.
    2. One computed place of an axis, as caches are written.
    3. One computed place in every row of a matrix, and one value.
    4. Constant indices of neighbouring axes.
    """
    given = [(axis, item) for axis, item in enumerate(node.arguments["indices"]) if item is not None]
    if len(given) == 1 and str(given[0][1].meta["val"].dtype) == "torch.bool":
        return _masked(node, *given[0])
    axes = [axis for axis, _ in given]
    indices = [node.indices.get(item) for _, item in given]
    if len(given) == 1 and not node.flag("accumulate") and _is_one_place(node, given[0][1]):
        return _written(node, *given[0], "values")
    if axes == [0, 1] and len(node.shape) == 2 and indices[1] is None and counts_rows(node, indices[0], given[1][1]):
        places = node.cast(node.importer.env[given[1][1]], "int64")
        return _chosen(node, marked(node, places, node.shape[1]))
    known = [value for value in indices if value is not None and value.dtype.kind == "i"]
    if len(known) < len(given) or axes != [*range(axes[0], axes[0] + len(axes))]:
        needed = (
            "integer constants of neighbouring axes, or one place of one axis (what is written at other computed "
            "places can be chosen, torch.where(mask, new, cache), with the mask an input)"
        )
        raise node.unsupported("argument indices", f"{len(given)} tensors", needed)
    shape, first = node.shape, axes[0]
    named = in_a_row(node.label, shape[first : first + len(axes)], known)
    places = Places(shape, first, first + len(axes), named)
    value = node.cast(node.tensor("values"), node.dtype)
    if shape_of(value) != places.result:
        value = node.emit(relax.op.broadcast_to(value, places.result))
    updates = emitted(node, value, places.flat)
    if node.flag("accumulate"):
        return combined(node, places, updates, *_REDUCTIONS["sum"])
    return replaced(node, places, updates)


def _is_one_place(node: Node, places: Any) -> bool:
    """Whether an argument is a computed index of one element."""
    return places not in node.indices and shape_of(node.importer.env[places]) == (1,)


def _written(node: Node, axis: int, place: Any, name: str) -> Expression:
    """The data with what is written at one computed place of an axis: at any other it stays."""
    rank, data = len(node.shape), node.tensor("self")
    mask = marked(node, node.cast(node.importer.env[place], "int64"), node.shape[axis])
    mask = emitted(node, mask, tuple(node.shape[axis] if other == axis else 1 for other in range(rank)))
    value = node.cast(node.tensor(name), node.dtype)
    value = emitted(node, value, (1,) * (rank - len(shape_of(value))) + shape_of(value))
    return relax.op.where(mask, value, data)


def _masked(node: Node, axis: int, mask: object) -> Expression:
    if axis:
        raise node.unsupported("the arguments", f"a mask of axis {axis}", "one from the first axis on")
    condition = node.importer.env[mask]
    rest = len(node.shape) - len(shape_of(condition))
    whole = emitted(node, condition, (*shape_of(condition), *(1,) * rest))
    return _chosen(node, node.emit(relax.op.broadcast_to(whole, node.shape)) if rest else whole)


def _chosen(node: Node, condition: Expression) -> Expression:
    """One value where a condition holds, else the data."""
    value = node.tensor("values")
    if node.flag("accumulate") or int(np.prod(shape_of(value))) != 1:
        found = f"values of shape {shape_of(value)}, accumulate {node.flag('accumulate')}"
        raise node.unsupported("the arguments", found, "one value that replaces what was there")
    number = node.emit(relax.op.reshape(node.cast(value, node.dtype), (1,) * len(node.shape)))
    return relax.op.where(condition, number, node.tensor("self"))
