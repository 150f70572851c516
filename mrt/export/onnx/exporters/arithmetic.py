"""Elementwise arithmetic, in int32."""

from __future__ import annotations

from functools import reduce

import numpy as np

from mrt.export.arithmetic import OF_TENSOR_AND_NUMBER, OF_TWO_TENSORS, numpy_name
from mrt.export.onnx.node import Node, Value, exporter, int32
from mrt.symbol import Operator
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.functions import Abs, Negative, Square
from mrt.symbol.operators.scalar import RMinusScalar, WithNumber

OPERATORS = {"add": "Add", "subtract": "Sub", "multiply": "Mul", "maximum": "Max", "minimum": "Min"}
"""ONNX's operator for two int32 tensors."""


@exporter(*OF_TWO_TENSORS)
def of_two_tensors(op: Operator, node: Node) -> Value:
    return node.emit(OPERATORS[numpy_name(op)], [node.wide(0), node.wide(1)])


@exporter(*OF_TENSOR_AND_NUMBER)
def of_tensor_and_number(op: WithNumber, node: Node) -> Value:
    return node.emit(OPERATORS[numpy_name(op)], [node.wide(0), int32(node.number(op.scalar))])


@exporter(RMinusScalar)
def number_minus_tensor(op: RMinusScalar, node: Node) -> Value:
    return node.emit("Sub", [int32(node.number(op.scalar)), node.wide(0)])


@exporter(AddN)
def add_n(op: AddN, node: Node) -> Value:
    """ONNX's Sum is of floats only."""
    terms = [node.wide(index) for index in range(node.input_count)]
    return reduce(lambda total, term: node.emit("Add", [total, term]), terms)


@exporter(Abs)
def absolute(op: Abs, node: Node) -> Value:
    return node.emit("Abs", [node.wide(0)])


@exporter(Negative)
def negative(op: Negative, node: Node) -> Value:
    return node.emit("Neg", [node.wide(0)])


@exporter(Square)
def square(op: Square, node: Node) -> Value:
    return node.emit("Mul", [node.wide(0), node.wide(0)])


@exporter(Relu)
def relu(op: Relu, node: Node) -> Value:
    return node.emit("Max", [node.wide(0), int32(0)])


@exporter(Clip)
def clip(op: Clip, node: Node) -> Value:
    """Limits that the dtype does not hold are its own: no value lies beyond them."""
    data = node.input_as(0, "int8", "uint8")
    held = np.iinfo(data.dtype)
    lo, hi = (min(max(limit, held.min), held.max) for limit in (op.a_min, op.a_max))
    return node.emit("Clip", [data, np.asarray(np.ceil(lo), data.dtype), np.asarray(np.floor(hi), data.dtype)])
