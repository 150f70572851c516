"""Reductions over axes: sum, mean, max."""

from __future__ import annotations

from collections.abc import Callable

from mrt.frontend.relax.node import Node, converter
from mrt.frontend.shaping import reshaped
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.reduce import Max, Mean, Sum

_REDUCTIONS: dict[str, Callable[..., Operator]] = {"relax.sum": Sum, "relax.mean": Mean, "relax.max": Max}


@converter("sum", "mean", "max")
def reduce(node: Node) -> Symbol:
    """No axes given mean all of them; an empty list means none. What has no axis left is MXNet's vector of one."""
    data, keepdims = node.symbol(0), node.flag("keepdims")
    axes = node.axes("axis", data.type.rank)
    if not axes:
        return data
    operator = _REDUCTIONS[node.operator](axis=axes, keepdims=keepdims)
    if len(axes) == data.type.rank and not keepdims:
        return reshaped(node, node.apply(operator, [data], "vector"), ())
    return node.apply(operator, [data])
