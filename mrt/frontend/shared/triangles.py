"""The upper or lower triangle of matrices, zeros elsewhere."""

from __future__ import annotations

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.node import ModelNode
from mrt.symbol import Symbol
from mrt.symbol.operators.broadcast import BroadcastMul


def triangle(node: ModelNode, k: int, upper: bool) -> Symbol:
    """The node's data times a mask. k: the diagonal at which the triangle ends, counted upwards from the main one."""
    data = node.symbol(0)
    if data.type.rank < 2:
        raise GraphError(f"{node.label}: data is {data.type}; rank 2 or more is needed")
    rows, columns = node.made(data.shape[-2:])
    # Beyond the last column or row the diagonal changes nothing.
    k = min(max(k, -rows), columns)
    below = np.tri(rows, columns, k=k - 1 if upper else k)
    mask = 1.0 - below if upper else below
    return node.apply(BroadcastMul(), [data, node.parameter(mask.astype(data.dtype), "mask")])
