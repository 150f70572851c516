"""Elementwise ONNX operators: activations, arithmetic with broadcasting, and those that change nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx

from mrt.errors import GraphError
from mrt.frontend.arithmetic import ADD, DIVIDE, MULTIPLY, SUBTRACT, combined
from mrt.frontend.clipping import FLOAT_MAX, clipped
from mrt.frontend.onnx.node import Node, converter
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.activation import LeakyReLU, Relu, Sigmoid, Tanh
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.integer import Cast
from mrt.symbol.operators.normalization import Dropout
from mrt.symbol.operators.scalar import MulScalar
from mrt.symbol.types import INTEGER_DTYPES


@converter("Relu")
def relu(node: Node) -> Symbol:
    return node.apply(Relu(), [node.symbol(0)])


@converter("Sigmoid")
def sigmoid(node: Node) -> Symbol:
    return node.apply(Sigmoid(), [node.symbol(0)])


@converter("Tanh")
def tanh(node: Node) -> Symbol:
    return node.apply(Tanh(), [node.symbol(0)])


@converter("LeakyRelu")
def leaky_relu(node: Node) -> Symbol:
    return node.apply(LeakyReLU(slope=node.number("alpha", 0.01)), [node.symbol(0)])


@converter("PRelu")
def parametric_relu(node: Node) -> Symbol:
    """A slope for all elements, or one for each channel; any other shape is not covered."""
    data = node.symbol(0)
    shape = node.known(1, "slope").shape
    aligned = (1,) * (data.type.rank - len(shape)) + shape
    if len(aligned) != data.type.rank or math.prod(shape) != max(aligned[1:2], default=1):
        raise node.unsupported("input slope", f"of shape {shape} on {data.type}", "one slope, or one for each channel,")
    gamma = node.symbol(1)
    if len(shape) != 1:
        gamma = node.parameter_of(1, "slope", "flat", lambda slope: slope.reshape(-1))
    return node.apply(LeakyReLU(act_type="prelu"), [data, gamma])


@converter("Clip")
def clip(node: Node) -> Symbol:
    """min(max(x, lo), hi), so that hi wins where they cross. The ends are attributes before opset 11, then inputs;
    an open one is float32's own.
    """
    if node.opset < 11:
        low, high = node.number("min", -FLOAT_MAX), node.number("max", FLOAT_MAX)
    else:
        given_low, given_high = node.given_number(1, "min"), node.given_number(2, "max")
        low = -FLOAT_MAX if given_low is None else max(given_low, -FLOAT_MAX)
        high = FLOAT_MAX if given_high is None else min(given_high, FLOAT_MAX)
    return clipped(node, node.symbol(0), min(low, high), high)


_ARITHMETIC = {"Add": ADD, "Sub": SUBTRACT, "Mul": MULTIPLY, "Div": DIVIDE}


@converter(*_ARITHMETIC)
def arithmetic(node: Node) -> Symbol:
    return combined(node, _ARITHMETIC[node.operator])


@converter("Neg")
def negate(node: Node) -> Symbol:
    return node.apply(MulScalar(-1.0), [node.symbol(0)])


@converter("Sum")
def add_all(node: Node) -> Symbol:
    """The sum of any number of tensors: at once where shapes are equal, else one after the other with broadcasting."""
    terms = node.symbols()
    if not terms:
        raise GraphError(f"{node.label}: has no inputs; at least one is needed")
    if len(terms) == 1:
        return terms[0]
    if all(term.shape == terms[0].shape for term in terms):
        return node.apply(AddN(), terms)
    return _chain(node, BroadcastAdd(), terms)


def _chain(node: Node, operator: Operator, terms: Sequence[Symbol]) -> Symbol:
    total = terms[0]
    for index, term in enumerate(terms[1:], start=1):
        total = node.apply(operator, [total, term], "" if index == len(terms) - 1 else f"sum{index}")
    return total


@converter("Identity")
def identity(node: Node) -> Symbol:
    return node.symbol(0)


@converter("Dropout")
def dropout(node: Node) -> Symbol:
    """Dropout as it is in inference, which is nothing; the ratio is kept."""
    if node.opset < 12:
        ratio = node.number("ratio", 0.5)
    else:
        given = node.given_number(1, "ratio")
        ratio = 0.5 if given is None else given
        if node.given_number(2, "training_mode"):
            raise node.unsupported("input training_mode", "true", "false, which is inference,")
    return node.apply(Dropout(p=ratio), [node.symbol(0)])


_FLOATS = frozenset({"FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE"})


@converter("Cast")
def cast(node: Node) -> Symbol:
    """A cast between float types is nothing, since every float is float32 here. Floats are truncated to integers."""
    data, target = node.symbol(0), node.integer("to", 0)
    if target not in onnx.TensorProto.DataType.values():
        raise GraphError(f"{node.label}: attribute to is {target}; a tensor data type is needed")
    name = onnx.TensorProto.DataType.Name(target)
    dtype = "float32" if name in _FLOATS else name.lower()
    if dtype == data.dtype:
        return data
    if dtype != "float32" and dtype not in INTEGER_DTYPES:
        raise node.unsupported("attribute to", name, "a float, signed integer, UINT8 or BOOL")
    return node.apply(Cast(dtype=dtype), [data])
