"""Comparisons and logic, whose truth values are 1 and 0."""

from __future__ import annotations

from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shared import comparison
from mrt.symbol import Symbol

_COMPARISONS = {
    "Equal": "equal",
    "Greater": "greater",
    "Less": "lesser",
    "GreaterOrEqual": "greater_equal",
    "LessOrEqual": "lesser_equal",
}
_LOGIC = {"And": "and", "Or": "or", "Xor": "xor", "Not": "not"}


@converter(*_COMPARISONS)
def compare(node: Node) -> Symbol:
    return comparison.comparison(node, _COMPARISONS[node.operator])


@converter(*_LOGIC)
def logic(node: Node) -> Symbol:
    return comparison.logic(node, _LOGIC[node.operator])
