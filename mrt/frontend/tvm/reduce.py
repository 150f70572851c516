"""Reductions over axes: sum, mean, max, min."""

from __future__ import annotations

from collections.abc import Callable

from mrt.frontend.shared.reductions import reduction
from mrt.frontend.tvm.node import TVMNode
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.reduce import Max, Mean, Sum
from mrt.symbol.operators.selection import Min

_REDUCTIONS: dict[str, Callable[..., Operator]] = {
    "sum": Sum,
    "mean": Mean,
    "max": Max,
    "min": Min,
}


def reduced(node: TVMNode, axes: tuple[int, ...]) -> Symbol:
    """Over the axes, counted from the front, perhaps none."""
    return reduction(node, _REDUCTIONS[node.kind], axes, node.flag("keepdims"))
