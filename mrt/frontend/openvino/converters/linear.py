"""Matrix products: MatMul as FullyConnected where one side is constant, else as dot or batch_dot; Einsum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mrt.frontend.openvino.node import Node, converter
from mrt.frontend.shared.channels_first import transposed
from mrt.frontend.shared.einsum import summed
from mrt.frontend.shared.matmul import product
from mrt.frontend.shared.node import Value
from mrt.symbol import Array, Symbol


@converter("MatMul")
def matmul(node: Node) -> Symbol:
    """A constant matrix on the right is the weight of a FullyConnected. A vector is not transposed."""
    swaps = node.flag("transpose_b", False)
    weight = _weight(node, swaps)
    lhs = _swapped(node, 0, node.flag("transpose_a", False), "lhs")
    # Of a constant on the right the product reads the shape alone.
    rhs = _swapped(node, 1, swaps, "rhs")
    return product(replace(node, inputs=(lhs, rhs)), weight, transposed)


def _weight(node: Node, swaps: bool) -> Symbol | None:
    """A constant right side, which may have leading axes of size 1 that add none to the result, as FullyConnected's
    (outputs, inputs); None for any other.
    """
    lhs, rhs = node.shape(0), node.shape(1)
    if not node.is_known(1) or any(size != 1 for size in rhs[:-2]) or len(rhs) > max(len(lhs), 2):
        return None
    if len(rhs) == 2 and swaps:
        return node.symbol(1, "weight")

    def arranged(b: Array) -> Array:
        if b.ndim == 1:
            return b.reshape(1, -1)
        matrix = b.reshape(b.shape[-2:])
        return matrix if swaps else matrix.T

    return node.parameter_of(1, "weight", "matrix" if swaps else "transposed", arranged)


def _swapped(node: Node, index: int, wanted: bool, role: str) -> Value:
    """An input with its last two axes exchanged where it is said so."""
    value, rank = node.array(index), len(node.shape(index))
    if not wanted or rank < 2:
        return node.input(index)
    if value is not None:
        return np.swapaxes(value, -1, -2)
    return transposed(node, node.symbol(index), (*range(rank - 2), rank - 1, rank - 2), f"{role}_transposed")


@converter("Einsum")
def einsum(node: Node) -> Symbol:
    return summed(node, node.text("equation"), node.all_symbols())
