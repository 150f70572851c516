"""Choosing among values: SELECT, comparisons, the place of an extreme."""

from __future__ import annotations

from mrt.frontend.shared.arithmetic import SUBTRACT, combined
from mrt.frontend.shared.comparison import compared
from mrt.frontend.shared.selection import chosen, placed
from mrt.frontend.tflite.node import Node, converter
from mrt.symbol import Symbol
from mrt.symbol.operators.selection import ArgMax, ArgMin, Where


@converter("SELECT")
def select(node: Node) -> Symbol:
    """A condition of one axis chooses rows, any other elements."""
    if len(node.shape(0)) == 1:
        return node.apply(Where(), [node.symbol(0, "condition"), node.symbol(1, "x"), node.symbol(2, "y")])
    return chosen(node)


@converter("SELECT_V2")
def select_broadcasting(node: Node) -> Symbol:
    return chosen(node)


_COMPARISONS = {
    "EQUAL": "equal",
    "NOT_EQUAL": "not_equal",
    "GREATER": "greater",
    "GREATER_EQUAL": "greater_equal",
    "LESS": "lesser",
    "LESS_EQUAL": "lesser_equal",
}


@converter(*_COMPARISONS)
def compare(node: Node) -> Symbol:
    """1 where it holds, else 0, in the type of the data."""
    return compared(node, combined(node, SUBTRACT, "difference"), _COMPARISONS[node.operator])


@converter("ARG_MAX", "ARG_MIN")
def place(node: Node) -> Symbol:
    """The axis goes."""
    axis = node.known_axis(1, len(node.shape(0)))
    return placed(node, ArgMax if node.operator == "ARG_MAX" else ArgMin, axis, keepdims=False)
