"""Linear maps along one axis, which interpolation, cumulated sums and averages over uneven windows are."""

from __future__ import annotations

import numpy as np

from mrt.frontend.shared.node import ModelNode
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.arrangement import SwapAxis
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.reduce import Sum
from mrt.symbol.operators.transform import ExpandDims


def mapped(node: ModelNode, data: Symbol, axis: int, matrix: Array, suffix: str = "") -> Symbol:
    """Y[…, i, …] = Σ_j matrix[i, j] X[…, j, …] along an axis counted from the front.

    matrix: (new length, length of the axis). A FullyConnected over the last axis, with which `axis` is exchanged before
    and after; of integers a sum of products, since a layer's weights get scales. UnsupportedOperatorError for integers
    that would be multiplied by fractions.
    """
    named = suffix or "map"
    if data.type.is_integer:
        return _mapped_integers(node, data, axis, matrix, suffix)
    weight = node.parameter(matrix, f"{named}_matrix")
    operator = FullyConnected(num_hidden=len(matrix), no_bias=True, flatten=False)
    last = data.type.rank - 1
    if axis == last:
        return node.apply(operator, [data, weight], suffix)
    exchange = SwapAxis(dim1=axis, dim2=last)
    moved = node.apply(exchange, [data], f"{named}_last")
    return node.apply(exchange, [node.apply(operator, [moved, weight], f"{named}_product")], suffix)


def _mapped_integers(node: ModelNode, data: Symbol, axis: int, matrix: Array, suffix: str) -> Symbol:
    if not np.array_equal(matrix, np.rint(matrix)):
        raise node.unsupported("the data", data.type, "a float")
    named = suffix or "map"
    node.made((*data.shape[:axis], len(matrix), *data.shape[axis:]))
    factors = matrix.astype(np.int32).reshape(*matrix.shape, *(1,) * (data.type.rank - axis - 1))
    column = node.apply(ExpandDims(axis=axis), [data], f"{named}_column")
    products = node.apply(BroadcastMul(), [column, node.parameter(factors, f"{named}_matrix")], f"{named}_products")
    return node.apply(Sum(axis=(axis + 1,)), [products], suffix)
