"""Choosing among values: SELECT, comparisons, logic, the place of an extreme, ONE_HOT."""

from __future__ import annotations

from mrt.frontend.shared.arithmetic import SUBTRACT, combined
from mrt.frontend.shared.comparison import compared, logic
from mrt.frontend.shared.ordering import ordered
from mrt.frontend.shared.selection import chosen, hot_rows, placed
from mrt.frontend.shared.shaping import moved_last
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


@converter("TOPK_V2")
def top_k(node: Node) -> tuple[Symbol, Symbol]:
    """Along the last axis."""
    return ordered(node, node.known_integers(1, "k")[0], -1, largest=True)


_LOGIC = {"LOGICAL_AND": "and", "LOGICAL_NOT": "not", "LOGICAL_OR": "or"}


@converter(*_LOGIC)
def combine(node: Node) -> Symbol:
    """Of truth values: 1 where it holds, else 0, as floats."""
    return logic(node, _LOGIC[node.operator])


@converter("ONE_HOT")
def one_hot(node: Node) -> Symbol:
    """on along a new axis at the index, off elsewhere and for an index outside."""
    data, (depth,) = node.symbol(0), node.known_integers(1, "depth") or (0,)
    node.made((depth,))
    rank = data.type.rank + 1
    axis = node.axis(node.options("OneHotOptions").integer("Axis"), rank)
    on, off = node.known_number(2, "on"), node.known_number(3, "off")
    return moved_last(node, hot_rows(node, data, depth, off, on, "" if axis == rank - 1 else "last"), axis)
