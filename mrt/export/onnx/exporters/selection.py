"""Reductions over axes, and operators that choose by a condition or an index."""

from __future__ import annotations

from mrt.export.onnx.node import Node, Value, exporter, int32, lengths
from mrt.symbol.operators.reduce import Extreme, Max, Sum
from mrt.symbol.operators.selection import ArgMax, ArgMin, Embedding, Min, Place, Where
from mrt.symbol.operators.transform import Take
from mrt.symbol.types import normalize_axis


@exporter(Sum)
def sum_(op: Sum, node: Node) -> Value:
    axes, data = op.axes(len(node.input_shape(0))), node.wide(0)
    # ONNX takes no axes for all.
    total = node.emit("ReduceSum", [data, lengths(axes)], keepdims=1) if axes else data
    return total if op.keepdims else node.reshaped(total, node.shape)


@exporter(Max)
def maximum(op: Max, node: Node) -> Value:
    return _extreme("ReduceMax", op, node)


@exporter(Min)
def minimum(op: Min, node: Node) -> Value:
    return _extreme("ReduceMin", op, node)


def _extreme(name: str, op: Extreme, node: Node) -> Value:
    axes, data = op.axes(len(node.input_shape(0))), node.input_as(0, "int8", "uint8")
    extreme = node.emit(name, [data], axes=list(axes), keepdims=1) if axes else data
    return extreme if op.keepdims else node.reshaped(extreme, node.shape)


@exporter(ArgMax)
def place_of_maximum(op: ArgMax, node: Node) -> Value:
    return _place("ArgMax", op, node)


@exporter(ArgMin)
def place_of_minimum(op: ArgMin, node: Node) -> Value:
    return _place("ArgMin", op, node)


def _place(name: str, op: Place, node: Node) -> Value:
    """ONNX too gives the first of equal ones, in int64."""
    data, shape = node.input_as(0, "int8", "uint8"), node.input_shape(0)
    if op.axis is None:
        data, shape = node.reshaped(data, (-1,)), (-1,)
    found = node.emit(name, [data], "int64", axis=normalize_axis(op.axis or 0, len(shape)), keepdims=1)
    return node.reshaped(node.cast(found, "int32"), node.shape)


@exporter(Where)
def where(op: Where, node: Node) -> Value:
    condition, rank = node.cast(node.input(0), "bool"), max(len(node.input_shape(1)), len(node.input_shape(2)))
    if op.aligned(node.input_shape(0), rank) != node.input_shape(0):
        condition = node.reshaped(condition, op.aligned(node.input_shape(0), rank))
    return node.emit("Where", [condition, node.wide(1), node.wide(2)], "int32")


@exporter(Take)
def take(op: Take, node: Node) -> Value:
    axis = normalize_axis(op.axis, len(node.input_shape(0)))
    length = node.input_shape(0)[axis]
    places = node.wide(1)
    if op.mode == "wrap":
        places = node.emit("Mod", [places, int32(length)])
    elif op.mode == "clip":
        places = _clipped(node, places, length)
    return node.emit("Gather", [node.input(0), places], axis=axis)


@exporter(Embedding)
def embedding(op: Embedding, node: Node) -> Value:
    return node.emit("Gather", [node.input(1), _clipped(node, node.wide(0), op.input_dim)], axis=0)


def _clipped(node: Node, places: Value, length: int) -> Value:
    return node.emit("Clip", [places, int32(0), int32(length - 1)])
