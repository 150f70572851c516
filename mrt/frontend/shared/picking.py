"""Elements at places: constant ones, and those that the data decide, by products with rows that hold a 1 there."""

from __future__ import annotations

import math

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.elements import Places, along_axis, by_tuples
from mrt.frontend.shared.node import ModelNode
from mrt.frontend.shared.selection import hot_rows
from mrt.frontend.shared.shaping import expanded, moved_last, reshaped
from mrt.symbol import Symbol
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.linear import BatchDot
from mrt.symbol.operators.reduce import Sum
from mrt.symbol.operators.transform import Concat, Take, Transpose


def at_places(node: ModelNode, data: Symbol, places: Places) -> Symbol:
    """The elements at constant places."""
    merged = reshaped(node, data, places.merged, "merged")
    positions = node.parameter(places.indices.reshape(-1).astype("int32"), "places")
    found = node.apply(Take(axis=places.first), [merged, positions], "" if places.flat == places.result else "taken")
    return reshaped(node, found, places.result)


def gathered_elements(node: ModelNode, axis: int) -> Symbol:
    """Of the node's first input, one element along `axis` for each of the indices, its second input, of its rank."""
    shape = node.shape(0)
    axis = node.axis(axis, len(shape))
    indices = node.array(1)
    given = node.shape(1)
    if len(given) != len(shape) or not math.prod(given):
        raise GraphError(f"{node.label}: indices have shape {given}; one of rank {len(shape)} is needed")
    if any(size > own for place, (size, own) in enumerate(zip(given, shape, strict=True)) if place != axis):
        raise GraphError(f"{node.label}: indices of shape {given} are beyond the data, of shape {shape}")
    if indices is None:
        return elements_at(node, node.symbol(0), node.symbol(1), axis)
    return at_places(node, node.symbol(0), along_axis(node.label, shape, axis, indices))


def gathered_rows(node: ModelNode, batch_axes: int) -> Symbol:
    """Of the node's first input, what the last axis of the indices, its second input, names behind the batch axes."""
    indices = node.array(1)
    if indices is not None:
        return at_places(node, node.symbol(0), by_tuples(node.label, node.shape(0), indices, batch_axes))
    rows = _rows_in_order(node) if not batch_axes else None
    if rows is not None:
        return rows_at(node, node.symbol(0), rows, 1)
    shape, given = node.shape(0), node.shape(1)
    if (
        given[-1:] != (1,)
        or not 0 < batch_axes < min(len(shape), len(given))
        or given[:batch_axes] != shape[:batch_axes]
    ):
        raise node.unsupported(
            "the indices",
            f"computed from the data, of shape {given}, behind {batch_axes} axes of batches",
            "a constant, or one index for each element behind the axis of the batch",
        )
    return rows_at(node, node.symbol(0), reshaped(node, node.symbol(1), given[:-1], "places_alone"), batch_axes)


def _rows_in_order(node: ModelNode) -> Symbol | None:
    """Where each of the indices is the number of its own row of the data, a constant, and a place in that row: the
    places. None for all other indices."""
    indices = node.symbol(1)
    if not isinstance(indices.operator, Concat) or indices.operator.dim % indices.type.rank != indices.type.rank - 1:
        return None
    rows, *others = indices.inputs
    known, count = node.scope.builder.value(rows), node.shape(0)[0]
    if known is None or len(others) != 1 or indices.shape[-1] != 2 or rows.shape[0] != count:
        return None
    in_order = np.arange(count).reshape((count,) + (1,) * (known.ndim - 1))
    if not np.array_equal(np.broadcast_to(in_order, known.shape), known):
        return None
    return reshaped(node, others[0], others[0].shape[:-1], "places_alone")


def rows_at(node: ModelNode, data: Symbol, indices: Symbol, batch_axes: int, suffix: str = "") -> Symbol:
    """Y[b, k, r] = X[b, indices[b, k], r], each letter any number of axes; b counts batch_axes, one or more.

    Indices below 0 count from the end; one outside gives zeros. Exact, in the dtype of the data.
    """
    lead, length, rest = data.shape[:batch_axes], data.shape[batch_axes], data.shape[batch_axes + 1 :]
    places = indices.shape[batch_axes:]
    count, width = math.prod(places), math.prod(rest)
    node.made((*lead, count, length, width) if data.type.is_integer else (*lead, count, length))
    flat = reshaped(node, indices, (*lead, count), "places_flat")
    hot = hot_rows(node, flat, length, 0.0, 1.0, "hot", wraps=True, dtype="float32" if data.type.is_float else "int32")
    matrix = reshaped(node, data, (*lead, length, width), "rows")
    found_suffix = suffix if (*places, *rest) == (count, width) else f"{suffix}found"
    if data.type.is_float:
        found = node.apply(BatchDot(), [hot, matrix], found_suffix)
    else:
        axis = len(lead) + 1
        sides = expanded(node, hot, (axis + 1,), "hot_column"), expanded(node, matrix, (axis - 1,), "rows_each")
        found = node.apply(BroadcastMul(), sides, "products")
        found = node.apply(Sum(axis=(axis,)), [found], found_suffix)
    return reshaped(node, found, (*lead, *places, *rest), suffix)


def elements_at(node: ModelNode, data: Symbol, indices: Symbol, axis: int) -> Symbol:
    """Y[i, j, k] = X[i, indices[i, j, k], k] for axis 1: one index for every element of the result; see `rows_at`.

    UnsupportedOperatorError where the indices choose along axis 0, or leave places of another axis out.
    """
    rank = data.type.rank
    others = [place for place in range(rank) if place != axis]
    if not axis or any(indices.shape[place] != data.shape[place] for place in others):
        raise node.unsupported(
            "the indices",
            f"computed from the data, of shape {indices.shape}, for axis {axis} of {data.shape}",
            "a constant, or an axis other than 0 and indices for all places of the others",
        )
    order = (*others, axis)
    last, places = data, indices
    if axis != rank - 1:
        last = node.apply(Transpose(axes=order), [data], "data_last")
        places = node.apply(Transpose(axes=order), [indices], "indices_last")
    found = rows_at(node, last, places, rank - 1, "" if axis == rank - 1 else "last")
    return moved_last(node, found, axis)
