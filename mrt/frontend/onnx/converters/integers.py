"""Operators of networks of integers alone: what a model without a single float computes, integer for integer.

Elsewhere integers stand for real numbers, of which a sum of products may be rounded; here a quotient is cut as ONNX
cuts it, and every int32 is exact.
"""

from __future__ import annotations

import numpy as np

from mrt.frontend.onnx.converters.quantization import float_operator
from mrt.frontend.onnx.node import Node, Value, exact_converter
from mrt.frontend.shared.quantizing import column_shape
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.activation import Clip
from mrt.symbol.operators.broadcast import BroadcastMul, BroadcastSub
from mrt.symbol.operators.integer import Cast
from mrt.symbol.operators.integer_math import FloorDivide
from mrt.symbol.operators.scalar import MinusScalar

_PRODUCTS = {"ConvInteger": ("Conv", 0), "MatMulInteger": ("MatMul", -1)}
"""The operator on int32, and the axis of the second factor along which zero points may differ."""


@exact_converter(*_PRODUCTS)
def integer_product(node: Node) -> Symbol:
    """The sum of products of int32, from which the zero points are taken first: a border holds 0 then."""
    operator, axis = _PRODUCTS[node.operator]
    return float_operator(node, operator, [_centred(node, 0, "x", -2), _centred(node, 1, "w", axis)], "")


def _centred(node: Node, index: int, role: str, axis: int) -> str:
    """The name of a new value: an input without its zero point, in int32."""
    value, name = node.input(index), node.scope.made_up(f"{node.name}_{role}")
    zero = node.known(index + 2, f"{role}_zero_point") if node.has(index + 2) else np.zeros((), np.int8)
    column = zero.reshape(column_shape(node, zero.shape, node.shape(index), axis)).astype(np.int32)
    centred: Value
    if not isinstance(value, Symbol):
        centred = np.asarray(value.astype(np.int32) - column)
    elif not zero.any():
        centred = _wide(node, value, role)
    elif column.size == 1:
        centred = node.apply(MinusScalar(int(column.reshape(()))), [_wide(node, value, f"{role}_wide")], role)
    else:
        centred = node.apply(BroadcastSub(), [_wide(node, value, f"{role}_wide"), _parameter(node, column, role)], role)
    node.scope.define(name, centred)
    return name


@exact_converter("Div")
def quotient(node: Node) -> Symbol:
    """Cut towards 0: floor(a / b) from 0 on, below it floor((a + b - 1) / b); b is at least 1."""
    return _quotient(node, "")


@exact_converter("Mod")
def remainder(node: Node) -> Symbol:
    """a - b (a div b), and b more where that is below 0: the remainder has the divisor's sign, and b is at least 1."""
    if node.integer("fmod", 0):
        raise node.unsupported("attribute fmod", 1, "0")
    data, divisor = node.symbol(0), node.symbol(1)
    multiple = node.apply(BroadcastMul(), [_quotient(node, "quotient"), divisor], "multiple")
    rest = node.apply(BroadcastSub(), [data, multiple], "rest")
    short = node.apply(BroadcastMul(), [_below(node, rest, "rest_below"), divisor], "short")
    return node.apply(BroadcastSub(), [rest, short])


def _quotient(node: Node, suffix: str) -> Symbol:
    data, divisor = node.symbol(0), node.symbol(1)
    known = node.array(1)
    if known is not None and known.min(initial=1) < 1:
        raise node.unsupported("a divisor", known.min(), "1 or more")
    less = node.apply(MinusScalar(1.0), [divisor], "less") if known is None else _parameter(node, known - 1, "less")
    added = node.apply(BroadcastMul(), [_below(node, data, "below"), less], "added")
    return node.apply(FloorDivide(), [node.apply(BroadcastSub(), [data, added], "moved"), divisor], suffix)


def _below(node: Node, value: Symbol, suffix: str) -> Symbol:
    """-1 where an integer is below 0, else 0."""
    return node.apply(Clip(a_min=-1.0, a_max=0.0), [value], suffix)


def _wide(node: Node, value: Symbol, suffix: str) -> Symbol:
    return value if value.dtype == "int32" else node.apply(Cast(dtype="int32"), [value], suffix)


def _parameter(node: Node, array: Array, role: str) -> Symbol:
    return node.scope.parameter(array.astype(np.int32), node.scope.made_up(f"{node.name}_{role}_constant"))
