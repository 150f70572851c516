"""Comparisons and logic, whose truth values are 1 and 0."""

from __future__ import annotations

from mrt.frontend.shared import comparison
from mrt.frontend.tvm.node import TVMNode
from mrt.symbol import Symbol

COMPARISONS = {
    "equal": "equal",
    "not_equal": "not_equal",
    "greater": "greater",
    "greater_equal": "greater_equal",
    "less": "lesser",
    "less_equal": "lesser_equal",
}
"""What TVM calls the comparisons."""

LOGIC = {f"logical_{name}": name for name in ("and", "or", "xor", "not")}


def compare(node: TVMNode) -> Symbol:
    return comparison.comparison(node, COMPARISONS[node.kind])


def logic(node: TVMNode) -> Symbol:
    return comparison.logic(node, LOGIC[node.kind])
