"""Matrix products: Gemm and MatMul, as FullyConnected where one side is constant, else as dot or batch_dot; Einsum,
cumulated sums and products."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shared.cumulated import cumulated_product
from mrt.frontend.shared.einsum import summed
from mrt.frontend.shared.mapping import mapped
from mrt.frontend.shared.matmul import product
from mrt.frontend.shared.node import ModelNode
from mrt.frontend.shared.triangles import triangle
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.dot import Dot
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.scalar import MulScalar
from mrt.symbol.operators.transform import Transpose


@converter("Gemm")
def gemm(node: Node) -> Symbol:
    """Y = alpha A' B' + beta C, where A' and B' are A and B or their transposes.

    Case 1: B is a constant. FullyConnected with the weight alpha B'ᵀ; beta C is its bias if it is the same in
    every row. Case 2: B is stored quantized and alpha is not 1. FullyConnected with the integers as they are, times
    alpha. Case 3: B is computed. A dot, times alpha. In all, any other beta C is added at the end.
    """
    for index in (0, 1):
        if len(node.shape(index)) != 2:
            raise GraphError(f"{node.label}: input {'AB'[index]} has shape {node.shape(index)}; rank 2 is needed")
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    has_addend = node.has(2) and beta != 0
    if not node.is_known(1):
        return _with_addend(node, _computed_product(node, alpha, has_addend), beta if has_addend else 0.0)
    data = node.symbol(0)
    if node.integer("transA", 0):
        data = node.apply(Transpose(axes=(1, 0)), [data], "transposed")
    apart = alpha != 1 and node.scope.quantized(node.known(1, "weight")) is not None
    weight = _scaled_weight(node, 1.0 if apart else alpha)
    if has_addend and not apart and _is_bias(node, weight.shape[0]):
        bias = _bias(node, beta, weight.shape[0])
        return node.apply(FullyConnected(num_hidden=weight.shape[0]), [data, weight, bias])
    operator = FullyConnected(num_hidden=weight.shape[0], no_bias=True)
    last = "product" if has_addend else ""
    unbiased = node.apply(operator, [data, weight], "unscaled" if apart else last)
    if apart:
        unbiased = node.apply(MulScalar(alpha), [unbiased], last)
    return _with_addend(node, unbiased, beta if has_addend else 0.0)


def _scaled_weight(node: Node, alpha: float) -> Symbol:
    """alpha B'ᵀ, which is FullyConnected's (outputs, inputs); B itself where it already is that."""
    as_stored = bool(node.integer("transB", 0))
    if as_stored and alpha == 1:
        return node.symbol(1)
    kind = "scaled" if as_stored else "transposed" if alpha == 1 else "transposed_scaled"
    # The factor is part of the key: nodes with different ones must not share a weight.
    kind = kind if alpha == 1 else f"{kind}_{alpha!r}"
    return node.parameter_of(1, "weight", kind, lambda b: _scaled(b if as_stored else b.T, alpha))


def _scaled(array: Array, factor: float) -> Array:
    return array if factor == 1 else array.astype(np.float64) * factor


def _is_bias(node: Node, outputs: int) -> bool:
    """Whether C is a constant with one number for each column, or for all."""
    shape = node.shape(2)
    rows = shape[:-1]
    return node.is_known(2) and all(size == 1 for size in rows) and (not shape or shape[-1] in (1, outputs))


def _bias(node: Node, beta: float, outputs: int) -> Symbol:
    if beta == 1 and node.shape(2) == (outputs,):
        return node.symbol(2)
    kind = "bias" if beta == 1 else f"bias_scaled_{beta!r}"
    return node.parameter_of(
        2, "bias", f"{kind}_{outputs}", lambda c: np.broadcast_to(_scaled(c, beta).reshape(-1), (outputs,))
    )


def _with_addend(node: Node, unbiased: Symbol, beta: float) -> Symbol:
    """The product and beta C."""
    if beta == 0:
        return unbiased
    addend = node.symbol(2)
    if beta != 1 and node.is_known(2):
        addend = node.parameter_of(2, "addend", f"scaled_{beta!r}", lambda c: _scaled(c, beta))
    elif beta != 1:
        addend = node.apply(MulScalar(beta), [addend], "addend")
    return node.apply(BroadcastAdd(), [unbiased, addend])


def _computed_product(node: Node, alpha: float, has_addend: bool) -> Symbol:
    """alpha A' B' of two matrices."""
    operator = Dot(transpose_a=bool(node.integer("transA", 0)), transpose_b=bool(node.integer("transB", 0)))
    last = "product" if has_addend else ""
    result = node.apply(operator, [node.symbol(0), node.symbol(1)], last if alpha == 1 else "dot")
    return result if alpha == 1 else node.apply(MulScalar(alpha), [result], last)


@converter("Einsum")
def einsum(node: Node) -> Symbol:
    return summed(node, node.text("equation", ""), node.symbols())


@converter("MatMul")
def matmul(node: Node) -> Symbol:
    return product(node, _weight(node), _transposed)


def _weight(node: Node) -> Symbol | None:
    """A constant right side of one or two axes as FullyConnected's (outputs, inputs), None for any other."""
    rank = len(node.shape(1))
    if not node.is_known(1) or rank > 2:
        return None
    if rank == 1:
        return node.parameter_of(1, "weight", "row", lambda b: b.reshape(1, -1))
    return node.parameter_of(1, "weight", "transposed", lambda b: b.T)


def _transposed(node: ModelNode, data: Symbol, axes: Sequence[int], suffix: str) -> Symbol:
    return node.apply(Transpose(axes=tuple(axes)), [data], suffix)


@converter("CumProd")
def cumulated_products(node: Node) -> Symbol:
    """The products of the elements up to each along an axis, without itself if exclusive, from the end if reverse."""
    exclusive, reverse = bool(node.integer("exclusive", 0)), bool(node.integer("reverse", 0))
    return cumulated_product(node, _axis_of_sums(node), exclusive, reverse)


def _axis_of_sums(node: Node) -> int:
    place = node.known_number(1, "axis")
    if not place.is_integer():
        raise GraphError(f"{node.label}: axis is {place}; a whole number is needed")
    return node.axis(int(place), node.symbol(0).type.rank)


@converter("CumSum")
def cumulated(node: Node) -> Symbol:
    """The sums of the elements up to each along an axis, without itself if exclusive, from the end if reverse: a map
    by a triangle of ones.
    """
    data, axis = node.symbol(0), _axis_of_sums(node)
    length = data.shape[axis]
    node.made((length, length))
    triangle = np.tri(length, k=-1 if node.integer("exclusive", 0) else 0)
    return mapped(node, data, axis, triangle[::-1, ::-1] if node.integer("reverse", 0) else triangle)


@converter("Trilu")
def trilu(node: Node) -> Symbol:
    given = node.given_integers(1, "k") or (0,)
    if len(given) != 1:
        raise GraphError(f"{node.label}: input k has {len(given)} elements; one is needed")
    return triangle(node, given[0], bool(node.integer("upper", 1)))
