"""Reductions over axes, and operators that choose by a condition or an index."""

from __future__ import annotations

from math import prod

from mrt.export.relay.expressions import Attribute, Value
from mrt.export.relay.node import Node, exporter
from mrt.symbol.operators.reduce import Max, Reduction, Sum
from mrt.symbol.operators.selection import ArgMax, ArgMin, Embedding, Min, Place, Where
from mrt.symbol.operators.transform import Take
from mrt.symbol.types import normalize_axis


@exporter(Sum)
def total(op: Sum, node: Node) -> Value:
    return _reduction("sum", op, node)


@exporter(Max)
def maximum(op: Max, node: Node) -> Value:
    return _reduction("max", op, node)


@exporter(Min)
def minimum(op: Min, node: Node) -> Value:
    return _reduction("min", op, node)


def _reduction(name: str, op: Reduction, node: Node) -> Value:
    """With its axes kept, since Relay's reduction of all axes has none left and MXNet's has one."""
    axes, data = op.axes(len(node.input_shape(0))), node.wide(0)
    return node.reshaped(reduced(node, name, data, axes) if axes else data, node.shape)


def reduced(node: Node, operator: str, data: Value, axes: tuple[int, ...]) -> Value:
    shape = [1 if axis in axes else n for axis, n in enumerate(data.shape)]
    return node.call(operator, [data], shape, {"axis": list(axes), "keepdims": True})


@exporter(ArgMax)
def place_of_maximum(op: ArgMax, node: Node) -> Value:
    return _place("argmax", op, node)


@exporter(ArgMin)
def place_of_minimum(op: ArgMin, node: Node) -> Value:
    return _place("argmin", op, node)


def _place(name: str, op: Place, node: Node) -> Value:
    """Relay too gives the first of equal ones, in int32."""
    data = node.wide(0)
    if op.axis is None:
        data = node.reshaped(data, (prod(data.shape),))
    axis = normalize_axis(op.axis or 0, len(data.shape))
    return node.reshaped(reduced(node, name, data, (axis,)), node.shape)


@exporter(Where)
def where(op: Where, node: Node) -> Value:
    rank = max(len(node.input_shape(1)), len(node.input_shape(2)))
    condition, bounds = node.input(0), node.bounds(0)
    if bounds.min < 0 or bounds.max > 1:
        condition = node.call("abs", [node.clipped(node.wide(0), -1, 1)])
    condition = node.reshaped(node.cast(condition, "bool"), op.aligned(condition.shape, rank))
    x, y = node.wide(1), node.wide(2)
    return node.call("where", [condition, x, y], node.shape, dtype="int32")


@exporter(Take)
def take(op: Take, node: Node) -> Value:
    """Places that mode raise refuses are proven not to occur, so that clip, Relay's default, is the same."""
    axis = normalize_axis(op.axis, len(node.input_shape(0)))
    mode: dict[str, Attribute] = {"mode": "wrap"} if op.mode == "wrap" else {}
    return node.call("take", [node.input(0), node.wide(1)], node.shape, {"axis": axis, **mode})


@exporter(Embedding)
def embedding(op: Embedding, node: Node) -> Value:
    return node.call("take", [node.input(1), node.wide(0)], node.shape, {"axis": 0})
