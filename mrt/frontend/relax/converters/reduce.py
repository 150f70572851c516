"""Reductions over axes: sum, mean, max, min, prod."""

from __future__ import annotations

from mrt.frontend.relax.node import Node, converter
from mrt.frontend.shared import reductions
from mrt.frontend.tvm.reduce import reduced
from mrt.symbol import Symbol


@converter("sum", "mean", "max", "min")
def reduce(node: Node) -> Symbol:
    """No axes given mean all of them; an empty list means none."""
    return reduced(node, node.axes("axis", len(node.shape(0))))


@converter("prod")
def product(node: Node) -> Symbol:
    return reductions.product(node, node.axes("axis", len(node.shape(0))), node.flag("keepdims"))
