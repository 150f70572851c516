"""Normalisation of each sample by itself: InstanceNormalization and LpNormalization."""

from __future__ import annotations

from mrt.frontend.onnx.node import Node, converter
from mrt.symbol import Symbol
from mrt.symbol.operators.instance_normalization import InstanceNorm, L2Normalization
from mrt.symbol.operators.transform import ExpandDims, Squeeze, Transpose

NO_EPS = 1e-30
"""Keeps a vector of zeros zero, as ONNX Runtime does, and is lost beside any other length."""


@converter("InstanceNormalization")
def instance_normalization(node: Node) -> Symbol:
    operator = InstanceNorm(eps=node.number("epsilon", 1e-5))
    return node.apply(operator, [node.symbol(index) for index in range(3)])


@converter("LpNormalization")
def lp_normalization(node: Node) -> Symbol:
    """x / length along one axis, for p = 2 only. The axis is brought to place 1, which L2Normalization sums over."""
    if node.integer("p", 2) != 2:
        raise node.unsupported("attribute p", node.integer("p", 2), "2")
    data = node.symbol(0)
    rank = data.type.rank
    axis = node.axis(node.integer("axis", -1), rank)
    operator = L2Normalization(eps=NO_EPS, mode="channel")
    if axis == 1:
        return node.apply(operator, [data])
    if rank == 1:
        row = node.apply(ExpandDims(axis=0), [data], "row")
        return node.apply(Squeeze(axis=(0,)), [node.apply(operator, [row], "normalized")])
    order = list(range(rank))
    order[1], order[axis] = axis, 1
    moved = node.apply(Transpose(axes=tuple(order)), [data], "moved")
    return node.apply(Transpose(axes=tuple(order)), [node.apply(operator, [moved], "normalized")])
