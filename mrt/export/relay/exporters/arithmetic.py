"""Elementwise arithmetic, in int32."""

from __future__ import annotations

from functools import reduce
from math import ceil, floor

from mrt.export.arithmetic import OF_TENSOR_AND_NUMBER, OF_TWO_TENSORS, numpy_name
from mrt.export.relay.expressions import Value
from mrt.export.relay.node import Node, exporter
from mrt.symbol import Operator
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.functions import Abs, Negative, Square
from mrt.symbol.operators.scalar import RMinusScalar, WithNumber
from mrt.symbol.types import INT32_MAX, INT32_MIN


@exporter(*OF_TWO_TENSORS)
def of_two_tensors(op: Operator, node: Node) -> Value:
    """Relay's names are NumPy's."""
    return node.call(numpy_name(op), [node.wide(0), node.wide(1)])


@exporter(*OF_TENSOR_AND_NUMBER)
def of_tensor_and_number(op: WithNumber, node: Node) -> Value:
    return node.call(numpy_name(op), [node.wide(0), node.number(op.scalar)])


@exporter(RMinusScalar)
def number_minus_tensor(op: RMinusScalar, node: Node) -> Value:
    return node.call("subtract", [node.constant(node.number(op.scalar)), node.wide(0)])


@exporter(AddN)
def add_n(op: AddN, node: Node) -> Value:
    return reduce(node.plus, (node.wide(index) for index in range(node.input_count)))


@exporter(Abs)
def absolute(op: Abs, node: Node) -> Value:
    return node.call("abs", [node.wide(0)])


@exporter(Negative)
def negative(op: Negative, node: Node) -> Value:
    return node.call("negative", [node.wide(0)])


@exporter(Square)
def square(op: Square, node: Node) -> Value:
    return node.call("multiply", [node.wide(0), node.wide(0)])


@exporter(Relu)
def relu(op: Relu, node: Node) -> Value:
    return node.call("nn.relu", [node.wide(0)])


@exporter(Clip)
def clip(op: Clip, node: Node) -> Value:
    """No value lies beyond the limits of 32 bits."""
    lo, hi = (min(max(limit, INT32_MIN), INT32_MAX) for limit in (op.a_min, op.a_max))
    return node.clipped(node.wide(0), ceil(lo), floor(hi))
