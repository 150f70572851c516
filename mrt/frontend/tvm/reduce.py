"""Reductions over axes: sum, mean, max, min."""

from __future__ import annotations

from collections.abc import Callable

from mrt.frontend.shaping import reshaped
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
    """Over the axes, counted from the front, perhaps none. What has no axis left is MXNet's vector of one."""
    data, keepdims = node.symbol(0), node.flag("keepdims")
    if not axes:
        return data
    operator = _REDUCTIONS[node.kind](axis=axes, keepdims=keepdims)
    if len(axes) == data.type.rank and not keepdims:
        return reshaped(node, node.apply(operator, [data], "vector"), ())
    return node.apply(operator, [data])
