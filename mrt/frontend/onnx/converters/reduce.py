"""Reductions over axes: ReduceSum, ReduceMean and their like."""

from __future__ import annotations

from mrt.frontend.onnx.converters.transform import axes_of
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shared import reductions
from mrt.frontend.shared.reductions import REDUCTIONS
from mrt.symbol import Symbol

_SIMPLE = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceL1": "l1",
    "ReduceL2": "l2",
    "ReduceSumSquare": "sum_square",
    "ReduceLogSum": "log_sum",
}


@converter(*_SIMPLE)
def reduce(node: Node) -> Symbol:
    return reductions.reduced(node, REDUCTIONS[_SIMPLE[node.operator]], _places(node), _keepdims(node))


@converter("ReduceLogSumExp")
def log_sum_exp(node: Node) -> Symbol:
    return reductions.log_sum_exp(node, _places(node), _keepdims(node))


@converter("ReduceProd")
def product(node: Node) -> Symbol:
    return reductions.product(node, _places(node), _keepdims(node))


def _keepdims(node: Node) -> bool:
    return bool(node.integer("keepdims", 1))


def _places(node: Node) -> tuple[int, ...]:
    """The axes counted from the front and in order: none named mean all, unless noop_with_empty_axes says none."""
    rank = len(node.shape(0))
    axes = axes_of(node, input_since=13 if node.operator == "ReduceSum" else 18)
    if not axes:
        return () if node.integer("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted({node.axis(axis, rank) for axis in axes}))
