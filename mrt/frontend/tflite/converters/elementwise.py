"""Elementwise operators of two tensors, and those that change nothing but the type."""

from __future__ import annotations

from functools import partial

from mrt.frontend.shared.angles import angle
from mrt.frontend.shared.arithmetic import ADD, DIVIDE, MULTIPLY, SUBTRACT, combined
from mrt.frontend.shared.node import Value
from mrt.frontend.shared.powers import powered
from mrt.frontend.shared.selection import MAXIMUM, MINIMUM
from mrt.frontend.tflite.activation import activated
from mrt.frontend.tflite.node import Node, converter
from mrt.symbol import Symbol
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.functions import Square
from mrt.symbol.operators.integer import Cast

_ARITHMETIC = {
    "ADD": (ADD, "AddOptions"),
    "SUB": (SUBTRACT, "SubOptions"),
    "MUL": (MULTIPLY, "MulOptions"),
    "DIV": (DIVIDE, "DivOptions"),
}


@converter(*_ARITHMETIC)
def arithmetic(node: Node) -> Symbol:
    forms, options = _ARITHMETIC[node.operator]
    if node.operator == "DIV" and not node.outputs[0].kind.startswith("FLOAT"):
        raise node.unsupported("the type", node.outputs[0].kind, "a float")
    return activated(node, node.options(options), partial(combined, node, forms))


@converter("MAXIMUM", "MINIMUM")
def extreme(node: Node) -> Symbol:
    return combined(node, MAXIMUM if node.operator == "MAXIMUM" else MINIMUM)


@converter("SQUARED_DIFFERENCE")
def squared_difference(node: Node) -> Symbol:
    return node.apply(Square(), [combined(node, SUBTRACT, "difference")])


@converter("ADD_N")
def add_all(node: Node) -> Symbol:
    terms = node.all_symbols()
    return node.apply(AddN(), terms) if len(terms) > 1 else terms[0]


converter("ATAN2")(angle)


@converter("POW")
def power(node: Node) -> Symbol:
    return powered(node)


@converter("CAST")
def cast(node: Node) -> Symbol:
    """A cast between float types is nothing, since every float is float32 here. Floats are truncated to integers."""
    data, dtype = node.symbol(0), node.outputs[0].dtype()
    return data if dtype == data.dtype else node.apply(Cast(dtype=dtype), [data])


@converter("DENSIFY", "DEQUANTIZE", "QUANTIZE")
def dequantize(node: Node) -> Value:
    """Nothing: integers that stand for real numbers are read as those, every float is float32, each tensor that has
    integers is rounded to them, and a sparse constant is read as the dense one that it stands for.
    """
    return node.input(0)
