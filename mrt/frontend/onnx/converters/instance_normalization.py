"""Normalisation of each sample by itself: InstanceNormalization and LpNormalization."""

from __future__ import annotations

from mrt.frontend.normalization import length_normalized
from mrt.frontend.onnx.node import Node, converter
from mrt.symbol import Symbol
from mrt.symbol.operators.instance_normalization import InstanceNorm

NO_EPS = 1e-30
"""Keeps a vector of zeros zero, as ONNX Runtime does, and is lost beside any other length."""


@converter("InstanceNormalization")
def instance_normalization(node: Node) -> Symbol:
    operator = InstanceNorm(eps=node.number("epsilon", 1e-5))
    return node.apply(operator, [node.symbol(index) for index in range(3)])


@converter("LpNormalization")
def lp_normalization(node: Node) -> Symbol:
    """x / length along one axis, for p = 2 only."""
    if node.integer("p", 2) != 2:
        raise node.unsupported("attribute p", node.integer("p", 2), "2")
    data = node.symbol(0)
    return length_normalized(node, data, node.axis(node.integer("axis", -1), data.type.rank), NO_EPS)
