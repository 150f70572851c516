"""NumPy's matmul with any leading axes: FullyConnected where one side is a weight, else dot or batch_dot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.node import ModelNode
from mrt.frontend.shared.shaping import broadcast, reshaped
from mrt.symbol import Symbol
from mrt.symbol.operators.dot import Dot
from mrt.symbol.operators.linear import BatchDot, FullyConnected
from mrt.symbol.operators.transform import ExpandDims

Transposed = Callable[[ModelNode, Symbol, Sequence[int], str], Symbol]
"""Gives a symbol with its axes in another order, named by a suffix."""


def product(node: ModelNode, weight: Symbol | None, transposed: Transposed) -> Symbol:
    """NumPy's matmul of the node's two inputs; GraphError where their shapes do not multiply.

    Case 1: the right side is a constant matrix or vector, of which the reader gives the `weight` (outputs, inputs),
    None in the other cases. FullyConnected over the last axis.
    Case 2: a constant matrix on the left of a symbol with leading axes. A B = (Bᵀ Aᵀ)ᵀ, so Case 1 between transposes.
    Case 3: else two matrices are a dot.
    Case 4: else batch_dot, leading axes brought to one shape.
    """
    lhs, rhs = node.shape(0), node.shape(1)
    if not lhs or not rhs or lhs[-1] != rhs[max(len(rhs) - 2, 0)]:
        raise GraphError(f"{node.label}: shapes {lhs} and {rhs} do not multiply")
    if weight is not None:
        return _weight_right(node, node.symbol(0), weight, rhs[-1:] if len(rhs) > 1 else ())
    if node.is_known(0) and len(lhs) == 2 and len(rhs) > 2:
        return _weight_left(node, node.symbol(0, "weight"), node.symbol(1), transposed)
    operands = node.symbol(0, "lhs"), node.symbol(1, "rhs")
    return node.apply(Dot(), operands) if len(lhs) == len(rhs) == 2 else _batched(node, *operands)


def _weight_right(node: ModelNode, data: Symbol, weight: Symbol, columns: Sequence[int]) -> Symbol:
    shape = (*data.shape[:-1], *columns)
    if data.type.rank == 1:
        data = node.apply(ExpandDims(axis=0), [data], "row")
    operator = FullyConnected(num_hidden=weight.shape[0], no_bias=True, flatten=data.type.rank == 2)
    is_last = (*data.shape[:-1], weight.shape[0]) == shape
    return reshaped(node, node.apply(operator, [data, weight], "" if is_last else "product"), shape)


def _weight_left(node: ModelNode, weight: Symbol, data: Symbol, transposed: Transposed) -> Symbol:
    swap = (*range(data.type.rank - 2), data.type.rank - 1, data.type.rank - 2)
    operator = FullyConnected(num_hidden=weight.shape[0], no_bias=True, flatten=False)
    product = node.apply(operator, [transposed(node, data, swap, "columns"), weight], "product")
    return transposed(node, product, swap, "")


def _batched(node: ModelNode, lhs: Symbol, rhs: Symbol) -> Symbol:
    rows, columns = lhs.shape[-2:-1], rhs.shape[-1:] if rhs.type.rank > 1 else ()
    leading = _leading_shape(node, lhs.shape[:-2], rhs.shape[:-2])
    shape = (*leading, *rows, *columns)
    leading = leading or (1,)
    lhs_matrix = lhs.shape[-2:] if rows else (1, *lhs.shape)
    rhs_matrix = rhs.shape[-2:] if columns else (*rhs.shape, 1)
    lhs = _with_leading(node, lhs, leading, lhs_matrix, "lhs")
    rhs = _with_leading(node, rhs, leading, rhs_matrix, "rhs")
    is_last = (*leading, lhs_matrix[0], rhs_matrix[1]) == shape
    return reshaped(node, node.apply(BatchDot(), [lhs, rhs], "" if is_last else "product"), shape)


def _with_leading(
    node: ModelNode, data: Symbol, leading: tuple[int, ...], matrix: tuple[int, ...], side: str
) -> Symbol:
    """`data` as matrices over the leading axes, repeated where those grow."""
    own = data.shape[:-2]
    aligned = (*(1,) * (len(leading) - len(own)), *own, *matrix)
    return broadcast(node, reshaped(node, data, aligned, f"{side}_matrices"), (*leading, *matrix), side)


def _leading_shape(node: ModelNode, lhs: tuple[int, ...], rhs: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return tuple(int(size) for size in np.broadcast_shapes(lhs, rhs))
    except ValueError:
        raise GraphError(f"{node.label}: leading axes {lhs} and {rhs} do not broadcast") from None
