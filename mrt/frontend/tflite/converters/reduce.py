"""Reductions over axes: MEAN, SUM, REDUCE_MAX, REDUCE_MIN, and of truth values REDUCE_ANY, REDUCE_ALL."""

from __future__ import annotations

from collections.abc import Callable

from mrt.frontend.shared.reductions import reduction
from mrt.frontend.tflite.node import Node, converter
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.reduce import Max, Mean, Sum
from mrt.symbol.operators.selection import Min

_REDUCTIONS: dict[str, Callable[..., Operator]] = {
    "MEAN": Mean,
    "REDUCE_ALL": Min,
    "REDUCE_ANY": Max,
    "REDUCE_MAX": Max,
    "REDUCE_MIN": Min,
    "SUM": Sum,
}


@converter(*_REDUCTIONS)
def reduce(node: Node) -> Symbol:
    """Over the axes that the second input names, perhaps none."""
    rank = len(node.shape(0))
    axes = sorted({node.axis(axis, rank) for axis in node.known_integers(1, "axes")})
    return reduction(node, _REDUCTIONS[node.operator], axes, node.options("ReducerOptions").flag("KeepDims"))
