"""Matrix products: dense, matmul and batch_matmul."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.relay.node import Node, converter
from mrt.frontend.shared.channels_first import transposed
from mrt.frontend.shared.node import Value
from mrt.frontend.tvm.linear import matmul
from mrt.symbol import Symbol
from mrt.symbol.operators.linear import FullyConnected


@converter("nn.dense")
def dense(node: Node) -> Symbol:
    """x Wᵀ. Case 1: a constant matrix W is the weight of FullyConnected. Case 2: else a product of both."""
    return product(node, False, True)


@converter("nn.matmul", "nn.batch_matmul")
def transposed_product(node: Node) -> Symbol:
    return product(node, node.flag("transpose_a"), node.flag("transpose_b"))


def product(node: Node, transpose_lhs: bool, transpose_rhs: bool) -> Symbol:
    """The product of the first two inputs, their last two axes swapped where it is said so."""
    dtype = node.out_dtype("out_dtype", node.symbol(0).dtype)
    lhs, rhs = node.shape(0), node.shape(1)
    if min(len(lhs), len(rhs)) < 2:
        raise GraphError(f"{node.label}: shapes {lhs} and {rhs} are given; matrices are needed")
    if transpose_rhs and not transpose_lhs and node.is_known(1) and len(rhs) == 2:
        operator = FullyConnected(num_hidden=rhs[0], no_bias=True, flatten=len(lhs) == 2)
        return node.cast(node.apply(operator, [node.symbol(0), node.symbol(1, "weight")]), dtype)
    inputs = _swapped(node, 0, transpose_lhs, "lhs"), _swapped(node, 1, transpose_rhs, "rhs")
    return node.cast(matmul(replace(node, inputs=inputs)), dtype)


def _swapped(node: Node, index: int, wanted: bool, role: str) -> Value:
    value = node.array(index)
    if not wanted:
        return node.input(index)
    if value is not None:
        return np.swapaxes(value, -1, -2)
    data = node.symbol(index)
    rank = data.type.rank
    return transposed(node, data, (*range(rank - 2), rank - 1, rank - 2), f"{role}_transposed")
