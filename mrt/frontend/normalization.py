"""Normalisation over axes that the operators do not have: layers of several axes, lengths along any axis."""

from __future__ import annotations

import math

from mrt.frontend.node import ModelNode
from mrt.frontend.shaping import reshaped
from mrt.symbol import Symbol
from mrt.symbol.operators.instance_normalization import L2Normalization
from mrt.symbol.operators.normalization import LayerNorm
from mrt.symbol.operators.transform import ExpandDims, Squeeze, Transpose


def layer_normalized(node: ModelNode, data: Symbol, axis: int, gamma: Symbol, beta: Symbol, eps: float) -> Symbol:
    """`data` normalized over all axes from `axis` on; several of them are made one and taken apart again.

    gamma and beta are vectors with an entry for each normalized element.
    """
    merged = reshaped(node, data, (*data.shape[:axis], math.prod(data.shape[axis:])), "merged")
    operator = LayerNorm(axis=-1, eps=eps)
    normalized = node.apply(operator, [merged, gamma, beta], "normalized" if merged is not data else "")
    return reshaped(node, normalized, data.shape)


def length_normalized(node: ModelNode, data: Symbol, axis: int, eps: float, suffix: str = "") -> Symbol:
    """x / sqrt(sum of x^2 + eps) along one axis, which is brought to place 1: L2Normalization sums over that."""
    rank = data.type.rank
    operator = L2Normalization(eps=eps, mode="channel")
    if axis == 1:
        return node.apply(operator, [data], suffix)
    if rank == 1:
        row = node.apply(ExpandDims(axis=0), [data], "row")
        return node.apply(Squeeze(axis=(0,)), [node.apply(operator, [row], "length_one")], suffix)
    order = list(range(rank))
    order[1], order[axis] = axis, 1
    moved = node.apply(Transpose(axes=tuple(order)), [data], "moved")
    return node.apply(Transpose(axes=tuple(order)), [node.apply(operator, [moved], "length_one")], suffix)
