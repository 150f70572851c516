"""Elementwise ONNX operators: activations, arithmetic with broadcasting, and those that change nothing."""

from __future__ import annotations

import math

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node, Value, converter
from mrt.frontend.shared.arithmetic import ADD, DIVIDE, MULTIPLY, SUBTRACT, combined
from mrt.frontend.shared.clipping import FLOAT_MAX, clipped
from mrt.frontend.shared.comparison import compared
from mrt.symbol import Symbol
from mrt.symbol.operators.activation import LeakyReLU, Relu, Sigmoid, Tanh
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul, BroadcastSub
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.integer import Cast
from mrt.symbol.operators.normalization import Dropout
from mrt.symbol.operators.scalar import MulScalar
from mrt.symbol.operators.selection import BroadcastMaximum, BroadcastMinimum
from mrt.symbol.types import FLOAT_DTYPES, INTEGER_DTYPES


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
    """Case 1: a constant slope for all elements, or one for each channel. Case 2: any other slopes that broadcast, as
    max(x, 0) - slope max(-x, 0).
    """
    data, shape = node.symbol(0), node.shape(1)
    aligned = (1,) * (data.type.rank - len(shape)) + shape
    is_channels = len(aligned) == data.type.rank and math.prod(shape) == max(aligned[1:2], default=1)
    if node.is_known(1) and is_channels:
        gamma = node.symbol(1)
        if len(shape) != 1:
            gamma = node.parameter_of(1, "slope", "flat", lambda slope: slope.reshape(-1))
        return node.apply(LeakyReLU(act_type="prelu"), [data, gamma])
    above = node.apply(Relu(), [data], "above")
    below = node.apply(Relu(), [node.apply(MulScalar(-1.0), [data], "negated")], "below")
    scaled = node.apply(BroadcastMul(), [below, node.symbol(1)], "scaled")
    return node.apply(BroadcastSub(), [above, scaled])


@converter("Clip")
def clip(node: Node) -> Symbol:
    """min(max(x, lo), hi), so that hi wins where they cross. The ends are attributes before opset 11, then inputs;
    an open one is float32's own. An end that is computed is a maximum or minimum.
    """
    if any(node.has(index) and not node.is_known(index) for index in (1, 2)):
        return _clipped_at_computed(node)
    if node.opset < 11:
        low, high = node.number("min", -FLOAT_MAX), node.number("max", FLOAT_MAX)
    else:
        given_low, given_high = node.given_number(1, "min"), node.given_number(2, "max")
        low = -FLOAT_MAX if given_low is None else max(given_low, -FLOAT_MAX)
        high = FLOAT_MAX if given_high is None else min(given_high, FLOAT_MAX)
    return clipped(node, node.symbol(0), min(low, high), high)


def _clipped_at_computed(node: Node) -> Symbol:
    data, low, high = node.symbol(0), _is_end(node, 1), _is_end(node, 2)
    if low:
        data = node.apply(BroadcastMaximum(), [data, node.symbol(1)], "from_below" if high else "")
    return node.apply(BroadcastMinimum(), [data, node.symbol(2)]) if high else data


def _is_end(node: Node, index: int) -> bool:
    """Whether an end is given and closed."""
    known = node.array(index) if node.has(index) else None
    return node.has(index) and (known is None or bool((np.abs(known) < FLOAT_MAX).any()))


_ARITHMETIC = {"Add": ADD, "Sub": SUBTRACT, "Mul": MULTIPLY, "Div": DIVIDE}


@converter(*_ARITHMETIC)
def arithmetic(node: Node) -> Symbol:
    return combined(node, _ARITHMETIC[node.operator])


@converter("Neg")
def negate(node: Node) -> Symbol:
    return node.apply(MulScalar(-1.0), [node.symbol(0)])


@converter("Sum")
def add_all(node: Node) -> Symbol:
    return _total(node, "")


@converter("Mean")
def mean_of_all(node: Node) -> Symbol:
    """The average of any number of tensors."""
    count = len(node.proto.input)
    return _total(node, "") if count < 2 else node.apply(MulScalar(1 / count), [_total(node, "total")])


def _total(node: Node, suffix: str) -> Symbol:
    """The sum of any number of tensors: at once where shapes are equal, else one after the other with broadcasting."""
    terms = node.symbols()
    if not terms:
        raise GraphError(f"{node.label}: has no inputs; at least one is needed")
    if len(terms) == 1:
        return terms[0]
    if all(term.shape == terms[0].shape for term in terms):
        return node.apply(AddN(), terms, suffix)
    total = terms[0]
    for index, term in enumerate(terms[1:], start=1):
        total = node.apply(BroadcastAdd(), [total, term], suffix if index == len(terms) - 1 else f"sum{index}")
    return total


@converter("Identity")
def identity(node: Node) -> Symbol:
    return node.symbol(0)


@converter("Dropout")
def dropout(node: Node) -> tuple[Value, ...]:
    """Dropout as it is in inference, which is nothing, with a mask of ones; the ratio is kept."""
    if node.opset < 12:
        ratio = node.number("ratio", 0.5)
    else:
        given = node.given_number(1, "ratio")
        ratio = 0.5 if given is None else given
        if node.given_number(2, "training_mode"):
            raise node.unsupported("input training_mode", "true", "false, which is inference,")
    data = node.symbol(0)
    mask = np.broadcast_to(np.True_, data.shape)
    return (node.apply(Dropout(p=ratio), [data]), mask)[: len(node.proto.output)]


@converter("Cast")
def cast(node: Node) -> Symbol:
    """A cast between float types is nothing, since every float is float32 here. Floats are truncated to integers."""
    return _cast(node, node.dtype("to", "float32"))


@converter("CastLike")
def cast_like(node: Node) -> Value:
    """A cast to what the graph has the second input in, every float being float32; of a constant at once."""
    like = str(node.input(1).dtype)
    dtype = "float32" if like in FLOAT_DTYPES else like
    if dtype != "float32" and dtype not in INTEGER_DTYPES:
        raise node.unsupported("the second input", dtype, "a float, signed integer, uint8 or bool")
    known = node.array(0)
    return _cast(node, dtype) if known is None else known.astype(dtype)


def _cast(node: Node, dtype: str) -> Symbol:
    data = node.symbol(0)
    if dtype == "bool" and data.type.is_float:
        # Truth is a float here, as comparisons give it.
        return compared(node, data, "not_equal")
    return data if dtype == data.dtype else node.apply(Cast(dtype=dtype), [data])
