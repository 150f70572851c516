"""Elements put at constant places of a tensor: in the place of what is there, or together with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from mrt.frontend.shared.elements import MOST_ROUNDS, Places, along_axis
from mrt.frontend.torch.building import emitted, part, reshaped, taken
from mrt.frontend.torch.node import Expression, Node, constant, shape_of
from mrt.symbol import Array


def places_along_axis(node: Node) -> Places:
    """The places that the node's constant index names along its axis, an index for every element."""
    shape, indices = shape_of(node.tensor("self")), known_indices(node, "index")
    if not shape or not indices.size:
        raise node.unsupported("argument index", f"of shape {indices.shape}", "one of an axis or more")
    return along_axis(node.label, shape, node.integer("dim") % len(shape), indices)


def places_of_axis(node: Node) -> Places:
    """The places that the node's constant index names of its axis."""
    shape, indices = shape_of(node.tensor("self")), known_indices(node, "index")
    axis = node.integer("dim") % len(shape)
    found = along_axis(node.label, (shape[axis],), 0, indices.reshape(-1)).indices
    return Places(shape, axis, axis + 1, found)


def counts_rows(node: Node, rows: Array | None, places: Any) -> bool:
    """Whether a constant names the rows of the data in order, and the places beside it, an argument, have an axis for
    them.
    """
    count = shape_of(node.tensor("self"))[0]
    shape = shape_of(node.importer.env[places])
    if rows is None or shape[:1] != (count,) or rows.shape != (count, *(1,) * (len(shape) - 1)):
        return False
    return np.array_equal(rows.reshape(-1), np.arange(count))


def marked(node: Node, places: Expression, length: int) -> Expression:
    """Along a new last axis, whether a place is the one that is named, counted from the end where it is below 0."""
    column = node.emit(relax.op.expand_dims(places, len(shape_of(places))))
    counted = constant(np.arange(*node.made(length)), "int64")
    from_front = node.emit(relax.op.equal(column, counted))
    from_end = node.emit(relax.op.equal(column, constant(np.arange(-length, 0), "int64")))
    return node.emit(relax.op.logical_or(from_front, from_end))


def known_indices(node: Node, name: str) -> Array:
    indices = node.indices.get(node.arguments[name])
    if indices is None:
        raise node.unsupported(f"argument {name}", "computed from the data", "a constant")
    return indices


def updates_of(node: Node, places: Places, name: str, value: str) -> Expression:
    """What is put at the places: a tensor that may be longer, or a number; of the shape that they have in a row."""
    if name not in node.arguments:
        number = constant(node.arguments[value], node.dtype)
        return node.emit(relax.op.full(node.made(*places.flat), number, node.dtype))
    given = node.cast(node.tensor(name), node.dtype)
    if len(shape_of(given)) < len(places.result):
        given = node.emit(relax.op.broadcast_to(given, places.result))
    for axis, size in enumerate(places.result):
        own = shape_of(given)[axis]
        given = given if own == size else node.emit(part(given, axis, 0, size))
    return emitted(node, given, places.flat)


def replaced(node: Node, places: Places, updates: Expression) -> Expression:
    """The data with other elements at the places: they follow the data, and every place takes its own."""
    data = emitted(node, node.tensor("self"), places.merged)
    joined = node.emit(relax.op.concat([data, updates], places.first))
    return reshaped(node.emit(taken(joined, places.first, places.replaced)), node.shape)


def combined(
    node: Node, places: Places, updates: Expression, combine: Callable[..., Expression], neutral: float | None
) -> Expression:
    """The data combined with each element that is put at a place: several for one place one after the other.

    neutral: what changes nothing; None for a maximum or minimum, where an element itself does not.
    """
    data, rounds, axis = emitted(node, node.tensor("self"), places.merged), places.rounds(), places.first
    if len(rounds) > MOST_ROUNDS:
        raise node.unsupported("how often one place is named", len(rounds), f"at most {MOST_ROUNDS}")
    count = shape_of(updates)[axis]
    for sources in rounds:
        if neutral is None:
            added, missing = data, count + np.arange(places.length)
        else:
            shape = node.made(*(1 if place == axis else size for place, size in enumerate(places.merged)))
            added = node.emit(relax.op.full(shape, constant(neutral, node.dtype), node.dtype))
            missing = np.full(places.length, count)
        joined = node.emit(relax.op.concat([updates, added], axis))
        chosen = node.emit(taken(joined, axis, np.where(sources < 0, missing, sources)))
        data = node.emit(combine(data, chosen))
    return reshaped(data, node.shape)
