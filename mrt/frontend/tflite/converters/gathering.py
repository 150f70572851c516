"""Elements by their indices: GATHER, GATHER_ND, EMBEDDING_LOOKUP."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.shaping import reshaped
from mrt.frontend.shared.slicing import taken
from mrt.frontend.tflite.node import Node, converter
from mrt.symbol import Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.transform import Take


@converter("GATHER")
def gather(node: Node) -> Symbol:
    """Elements along an axis, at constant indices or computed ones; the first BatchDims axes belong together."""
    options, data = node.options("GatherOptions"), node.symbol(0, "table")
    rank = data.type.rank
    batch, axis = options.integer("BatchDims"), node.axis(options.integer("Axis"), rank)
    batch += len(node.shape(1)) if batch < 0 else 0
    if not batch:
        return _elements(node, data, axis, 1)
    lead = data.shape[:batch]
    if not 0 <= batch <= min(axis, len(node.shape(1))) or node.shape(1)[:batch] != lead:
        raise GraphError(f"{node.label}: {batch} batch dimensions of {data.type} and indices of {node.shape(1)}")
    if axis != batch:
        raise node.unsupported("Axis", axis, f"{batch}, the one behind the batch dimensions")
    return _batched(node, data, batch)


def _batched(node: Node, data: Symbol, batch: int) -> Symbol:
    """Rows of the data with its batch dimensions and the next one made one, each index counted in its own part."""
    lead, length, rest = data.shape[:batch], data.shape[batch], data.shape[batch + 1 :]
    indices, count = node.shape(1), math.prod(lead)
    rows = reshaped(node, data, (count * length, *rest), "rows")
    first = np.arange(count, dtype=np.int32).reshape(*lead, *(1,) * (len(indices) - batch)) * length
    if node.is_known(1):
        moved = _checked(node, length) + first
        places = node.parameter(moved.reshape(-1).astype(np.int32), "places")
    else:
        shift = node.parameter(first, "first_places")
        places = reshaped(node, node.apply(BroadcastAdd(), [node.symbol(1), shift], "places"), (math.prod(indices),))
    return reshaped(node, node.apply(Take(axis=0), [rows, places], "elements"), (*indices, *rest))


def _checked(node: Node, size: int) -> np.ndarray:
    """Known indices; GraphError where one is no place of an axis of this size."""
    indices = node.known(1, "indices")
    if indices.dtype.kind != "i" or (indices.size and (indices.min() < 0 or indices.max() >= size)):
        raise GraphError(f"{node.label}: indices are no integers in [0, {size})")
    return indices


@converter("GATHER_ND")
def gather_places(node: Node) -> Symbol:
    """The parts of the data at known places, one in each row of the indices."""
    data, indices = node.symbol(0, "table"), node.known(1, "indices")
    depth = indices.shape[-1] if indices.ndim else 0
    lengths, rest = data.shape[:depth], data.shape[depth:]
    if indices.dtype.kind != "i" or not 1 <= depth <= data.type.rank or not indices.size:
        raise GraphError(f"{node.label}: indices of shape {indices.shape} for {data.type}")
    if (indices < 0).any() or (indices >= np.asarray(lengths)).any():
        raise GraphError(f"{node.label}: indices reach beyond {data.type}")
    rows = reshaped(node, data, (math.prod(lengths), *rest), "rows")
    flat = np.ravel_multi_index(tuple(np.moveaxis(indices, -1, 0)), lengths).astype(np.int32)
    places = node.parameter(flat.reshape(-1), "places")
    return reshaped(node, node.apply(Take(axis=0), [rows, places], "elements"), (*flat.shape, *rest))


@converter("EMBEDDING_LOOKUP")
def embedding_lookup(node: Node) -> Symbol:
    """Rows of the second input at the indices of the first."""
    moved = replace(node, inputs=(node.input(1), node.input(0)))
    table = moved.symbol(0, "table")
    return _elements(moved, table, node.axis(0, table.type.rank), 1)


def _elements(node: Node, data: Symbol, axis: int, index: int) -> Symbol:
    """The elements of `data` at the indices that an input gives."""
    if not node.is_known(index):
        return node.apply(Take(axis=axis), [data, node.symbol(index)])
    size = data.shape[axis]
    return taken(node, data, axis, _checked(node, size), f"below_{size}")
