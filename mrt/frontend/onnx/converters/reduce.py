"""Reductions over axes: sum, mean, max, min."""

from __future__ import annotations

from collections.abc import Callable

from mrt.frontend.onnx.converters.transform import axes_of
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shaping import reshaped
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.reduce import Max, Mean, Sum
from mrt.symbol.operators.selection import Min

_REDUCTIONS: dict[str, tuple[Callable[..., Operator], int]] = {
    "ReduceSum": (Sum, 13),
    "ReduceMean": (Mean, 18),
    "ReduceMax": (Max, 18),
    "ReduceMin": (Min, 18),
}
"""The operator, and the opset since which the axes are an input."""


@converter(*_REDUCTIONS)
def reduce(node: Node) -> Symbol:
    """No axes mean all of them, unless noop_with_empty_axes says that they mean none."""
    operator, input_since = _REDUCTIONS[node.operator]
    data, axes = node.symbol(0), axes_of(node, input_since)
    if not axes and node.integer("noop_with_empty_axes", 0):
        return data
    rank = data.type.rank
    places = tuple(sorted(node.axis(axis, rank) for axis in axes)) if axes else tuple(range(rank))
    keepdims = bool(node.integer("keepdims", 1))
    is_scalar = len(places) == rank and not keepdims
    # MXNet has no tensors of rank 0: its full reduction leaves one axis.
    reduced = node.apply(operator(axis=places, keepdims=keepdims), [data], "reduced" if is_scalar else "")
    return reshaped(node, reduced, ()) if is_scalar else reduced
