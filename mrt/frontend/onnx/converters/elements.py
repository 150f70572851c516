"""Elements at constant places, and elements put there: GatherElements, GatherND, ScatterElements, ScatterND."""

from __future__ import annotations

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shared.elements import Places, along_axis, by_tuples
from mrt.frontend.shared.picking import gathered_elements, gathered_rows
from mrt.frontend.shared.shaping import reshaped
from mrt.symbol import Symbol
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
    if reduction != "none":
        raise node.unsupported("attribute reduction", reduction, "none")
    if node.shape(2) != places.result:
        raise GraphError(f"{node.label}: updates have shape {node.shape(2)}; {places.result} is needed")
    data = reshaped(node, node.symbol(0), places.merged, "merged")
    updates = reshaped(node, node.symbol(2), places.flat, "updates")
    joined = node.apply(Concat(dim=places.first), [data, updates], "joined")
    positions = node.parameter(places.replaced.astype("int32"), "places")
    name = "" if places.merged == places.shape else "taken"
    return reshaped(node, node.apply(Take(axis=places.first), [joined, positions], name), places.shape)
