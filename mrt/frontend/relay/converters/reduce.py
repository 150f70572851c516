"""Reductions over axes, and the places of extremes."""

from __future__ import annotations

from mrt.frontend.relay.node import Node, converter
from mrt.frontend.shared import reductions
from mrt.frontend.shared.shaping import reshaped
from mrt.frontend.tvm.reduce import reduced
from mrt.frontend.tvm.selection import place
from mrt.symbol import Symbol
from mrt.symbol.operators.broadcast import BroadcastSub
from mrt.symbol.operators.functions import Square
from mrt.symbol.operators.reduce import Mean


@converter("sum", "mean", "max", "min")
def reduce(node: Node) -> Symbol:
    """Over the axes named, or with exclude over all others. Sums of integers keep their dtype."""
    return node.cast(reduced(node, _axes(node)), node.result_dtype)


@converter("prod")
def product(node: Node) -> Symbol:
    return node.cast(reductions.product(node, _axes(node), node.flag("keepdims")), node.result_dtype)


def _axes(node: Node) -> tuple[int, ...]:
    rank = len(node.shape(0))
    axes = node.axes("axis", rank)
    return tuple(axis for axis in range(rank) if axis not in axes) if node.flag("exclude") else axes


@converter("variance")
def variance(node: Node) -> Symbol:
    """The mean of (x - mean)^2, the mean being the second input with its axes kept."""
    if node.flag("unbiased"):
        raise node.unsupported("attribute unbiased", True, "False")
    data, axes = node.symbol(0), _axes(node)
    centered = node.apply(BroadcastSub(), [data, node.symbol(1, "mean")], "centered")
    squares = node.apply(Square(), [centered], "squares")
    keepdims = node.flag("keepdims")
    if not axes:
        return squares
    is_scalar = len(axes) == data.type.rank and not keepdims
    found = node.apply(Mean(axis=axes, keepdims=keepdims), [squares], "vector" if is_scalar else "")
    return reshaped(node, found, ()) if is_scalar else found


@converter("argmax", "argmin")
def extreme(node: Node) -> Symbol:
    """Along one axis, or over all elements; the first of several."""
    if node.flag("select_last_index"):
        raise node.unsupported("attribute select_last_index", True, "False")
    axes = _axes(node)
    if node.is_none("axis") and not node.flag("exclude"):
        return place(node, None)
    if len(axes) != 1:
        raise node.unsupported("attribute axis", axes, "one axis or none")
    return place(node, axes[0])
