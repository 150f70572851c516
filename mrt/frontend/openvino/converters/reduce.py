"""Reductions over axes."""

from __future__ import annotations

from mrt.frontend.openvino.node import Node, converter
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
}


@converter(*_SIMPLE)
def reduce(node: Node) -> Symbol:
    return reductions.reduced(node, REDUCTIONS[_SIMPLE[node.operator]], _axes(node), node.flag("keep_dims", False))


@converter("ReduceProd")
def product(node: Node) -> Symbol:
    return reductions.product(node, _axes(node), node.flag("keep_dims", False))


def _axes(node: Node) -> tuple[int, ...]:
    return node.known_axes(1, len(node.shape(0)))
