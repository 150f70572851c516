"""Elements at constant places, and elements put there: GatherElements, GatherND, ScatterElements, ScatterND."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shared.elements import MOST_ROUNDS, Places, along_axis, by_tuples
from mrt.frontend.shared.picking import gathered_elements, gathered_rows
from mrt.frontend.shared.shaping import reshaped
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.selection import BroadcastMaximum, BroadcastMinimum
from mrt.symbol.operators.transform import Concat, Take


@converter("GatherElements")
def gather_elements(node: Node) -> Symbol:
    return gathered_elements(node, node.integer("axis", 0))


@converter("GatherND")
def gather_nd(node: Node) -> Symbol:
    """With indices that are joined of constants and of one tensor that the data decide, the constants count batches."""
    return gathered_rows(node, node.integer("batch_dims", 0))


@converter("Scatter", "ScatterElements")
def scatter_elements(node: Node) -> Symbol:
    return _replaced(node, _along_axis(node))


@converter("ScatterND")
def scatter_nd(node: Node) -> Symbol:
    return _replaced(node, by_tuples(node.label, node.shape(0), node.known(1, "indices")))


def _along_axis(node: Node) -> Places:
    shape, indices = node.shape(0), node.known(1, "indices")
    axis = node.axis(node.integer("axis", 0), len(shape))
    if indices.ndim != len(shape) or not indices.size:
        raise GraphError(f"{node.label}: indices have shape {indices.shape}; one of rank {len(shape)} is needed")
    sizes = zip(indices.shape, shape, strict=True)
    if any(given > size for place, (given, size) in enumerate(sizes) if place != axis):
        raise GraphError(f"{node.label}: indices of shape {indices.shape} are beyond the data, of shape {shape}")
    return along_axis(node.label, shape, axis, indices)


def _replaced(node: Node, places: Places) -> Symbol:
    """The data with some elements replaced: what is put there follows the data, and every place takes its own."""
    reduction = node.text("reduction", "none")
    if reduction != "none" and reduction not in _REDUCTIONS:
        raise node.unsupported("attribute reduction", reduction, f"none or one of {[*_REDUCTIONS]}")
    if node.shape(2) != places.result:
        raise GraphError(f"{node.label}: updates have shape {node.shape(2)}; {places.result} is needed")
    data = reshaped(node, node.symbol(0), places.merged, "merged")
    updates = reshaped(node, node.symbol(2), places.flat, "updates")
    if reduction != "none":
        return reshaped(node, _combined(node, places, data, updates, *_REDUCTIONS[reduction]), places.shape)
    joined = node.apply(Concat(dim=places.first), [data, updates], "joined")
    positions = node.parameter(places.replaced.astype("int32"), "places")
    name = "" if places.merged == places.shape else "taken"
    return reshaped(node, node.apply(Take(axis=places.first), [joined, positions], name), places.shape)


_REDUCTIONS: dict[str, tuple[Callable[[], Operator], float | None]] = {
    "add": (BroadcastAdd, 0.0),
    "mul": (BroadcastMul, 1.0),
    "max": (BroadcastMaximum, None),
    "min": (BroadcastMinimum, None),
}
"""How what is put at a place is combined with what is there, and what changes nothing; None for an element itself."""


def _combined(
    node: Node, places: Places, data: Symbol, updates: Symbol, make: Callable[[], Operator], neutral: float | None
) -> Symbol:
    """The data combined with each element that is put at a place: several for one place one after the other."""
    rounds, axis = places.rounds(), places.first
    if len(rounds) > MOST_ROUNDS:
        raise node.unsupported("how often one place is named", len(rounds), f"at most {MOST_ROUNDS}")
    for turn, sources in enumerate(rounds):
        if neutral is None:
            added, missing = data, places.indices.size + np.arange(places.length)
        else:
            shape = node.made([1 if place == axis else size for place, size in enumerate(places.merged)])
            added = node.parameter(np.full(shape, neutral, updates.dtype), f"neutral{turn}")
            missing = np.full(places.length, places.indices.size)
        joined = node.apply(Concat(dim=axis), [updates, added], f"joined{turn}")
        taken = node.parameter(np.where(sources < 0, missing, sources).astype("int32"), f"places{turn}")
        chosen = node.apply(Take(axis=axis), [joined, taken], f"chosen{turn}")
        is_last = turn == len(rounds) - 1 and places.merged == places.shape
        data = node.apply(make(), [data, chosen], "" if is_last else f"combined{turn}")
    return data
