"""A tensor times a function of itself."""

from __future__ import annotations

from mrt.frontend.shared.node import ModelNode
from mrt.symbol import Symbol
from mrt.symbol.operators.activation import Sigmoid
from mrt.symbol.operators.elementwise import ElemwiseMul
from mrt.symbol.operators.functions import Silu
from mrt.symbol.operators.scalar import MulScalar


def swished(node: ModelNode, beta: float) -> Symbol:
    """x sigmoid(beta x) of the node's first input."""
    data = node.symbol(0)
    if beta == 1:
        return node.apply(Silu(), [data])
    gate = node.apply(Sigmoid(), [node.apply(MulScalar(beta), [data], "scaled")], "gate")
    return node.apply(ElemwiseMul(), [data, gate])
