"""Reductions over axes: sum, mean, max, min, prod, variance."""

from __future__ import annotations

import numpy as np

from mrt.frontend.relax.node import Node, converter
from mrt.frontend.shared import reductions
from mrt.frontend.shared.cumulated import cumulated_product
from mrt.frontend.shared.mapping import mapped
from mrt.frontend.tvm.reduce import reduced
from mrt.symbol import Symbol
from mrt.symbol.operators.broadcast import BroadcastSub
from mrt.symbol.operators.functions import Sqrt, Square
from mrt.symbol.operators.reduce import Mean


@converter("sum", "mean", "max", "min")
def reduce(node: Node) -> Symbol:
    """No axes given mean all of them; an empty list means none."""
    return reduced(node, node.axes("axis", len(node.shape(0))))


@converter("cumprod", "cumsum")
def cumulated(node: Node) -> Symbol:
    """Along one axis, without each element itself if exclusive; sums are a map by a triangle of ones."""
    if node.is_none("axis"):
        raise node.unsupported("attribute axis", "None", "one axis")
    shape, exclusive = node.shape(0), node.flag("exclusive")
    axis = node.axis(node.integer("axis"), len(shape))
    if node.kind == "cumprod":
        return cumulated_product(node, axis, exclusive, False)
    node.made((shape[axis], shape[axis]))
    return mapped(node, node.symbol(0), axis, np.tri(shape[axis], k=-1 if exclusive else 0))


@converter("prod")
def product(node: Node) -> Symbol:
    return reductions.product(node, node.axes("axis", len(node.shape(0))), node.flag("keepdims"))


@converter("variance", "std")
def variance(node: Node) -> Symbol:
    """The mean of (x - mean of x)^2, and its root."""
    data, keepdims = node.symbol(0), node.flag("keepdims")
    axes = node.axes("axis", len(node.shape(0)))
    mean = reductions.over_axes(node, Mean, data, axes, True, "mean")
    squares = node.apply(Square(), [node.apply(BroadcastSub(), [data, mean], "centered")], "squares")
    if node.kind == "variance":
        return reductions.over_axes(node, Mean, squares, axes, keepdims)
    return node.apply(Sqrt(), [reductions.over_axes(node, Mean, squares, axes, keepdims, "variance")])
