"""Elementwise operators of two tensors, comparisons, and those that change nothing but the type."""

from __future__ import annotations

from mrt.frontend.openvino.node import Node, converter
from mrt.frontend.shared import comparison
from mrt.frontend.shared.arithmetic import ADD, DIVIDE, MULTIPLY, SUBTRACT, combined
from mrt.frontend.shared.powers import powered
from mrt.frontend.shared.selection import MAXIMUM, MINIMUM, chosen
from mrt.symbol import Symbol
from mrt.symbol.operators.functions import Square
from mrt.symbol.operators.integer import Cast

_ARITHMETIC = {
    "Add": ADD,
    "Subtract": SUBTRACT,
    "Multiply": MULTIPLY,
    "Divide": DIVIDE,
    "Maximum": MAXIMUM,
    "Minimum": MINIMUM,
}


@converter(*_ARITHMETIC)
def arithmetic(node: Node) -> Symbol:
    _check_broadcast(node)
    if node.operator == "Divide" and node.dtypes[0] != "float32":
        raise node.unsupported("the type", node.dtypes[0], "a float")
    return combined(node, _ARITHMETIC[node.operator])


@converter("SquaredDifference")
def squared_difference(node: Node) -> Symbol:
    _check_broadcast(node)
    return node.apply(Square(), [combined(node, SUBTRACT, "difference")])


@converter("Power")
def power(node: Node) -> Symbol:
    return powered(node)


_COMPARISONS = {
    "Equal": "equal",
    "NotEqual": "not_equal",
    "Greater": "greater",
    "GreaterEqual": "greater_equal",
    "Less": "lesser",
    "LessEqual": "lesser_equal",
}


@converter(*_COMPARISONS)
def compare(node: Node) -> Symbol:
    """1 where it holds, else 0."""
    _check_broadcast(node)
    return comparison.comparison(node, _COMPARISONS[node.operator])


@converter("LogicalAnd", "LogicalOr", "LogicalXor", "LogicalNot")
def logic(node: Node) -> Symbol:
    return comparison.logic(node, node.operator.removeprefix("Logical").lower())


@converter("Select")
def select(node: Node) -> Symbol:
    return chosen(node)


@converter("Convert", "ConvertLike")
def convert(node: Node) -> Symbol:
    """A cast between float types is nothing, since every float is float32 here. Floats are truncated to integers."""
    data, dtype = node.symbol(0), node.dtypes[0]
    return data if dtype == data.dtype else node.apply(Cast(dtype=dtype), [data])


def _check_broadcast(node: Node) -> None:
    """NumPy's rule, or operands of equal rank, for which all rules are one."""
    mode = node.text("auto_broadcast", "numpy")
    if mode != "numpy" and len(node.shape(0)) != len(node.shape(1)):
        raise node.unsupported("attribute auto_broadcast", mode, "numpy")
