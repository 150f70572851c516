"""Attention: ScaledDotProductAttention, of matrix products and a softmax."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from mrt.frontend.openvino.node import Node, converter
from mrt.frontend.shared.channels_first import transposed
from mrt.frontend.shared.matmul import product
from mrt.symbol import Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.normalization import Softmax
from mrt.symbol.operators.scalar import MulScalar
from mrt.symbol.operators.selection import Where

_QUERY, _KEY, _VALUE, _MASK, _SCALE = range(5)


@converter("ScaledDotProductAttention")
def attention(node: Node) -> Symbol:
    """softmax(scale Q K^T + mask) V over the last two axes; scale is 1 / sqrt(the length of a query) if not given.

    A mask of truth values forbids what is false; causal allows no key behind the query, and no other mask counts.
    """
    query, key = node.symbol(_QUERY, "query"), node.symbol(_KEY, "key")
    scale = node.known_number(_SCALE, "scale") if node.has(_SCALE) else 1 / math.sqrt(query.shape[-1])
    rank = key.type.rank
    columns = transposed(node, key, (*range(rank - 2), rank - 1, rank - 2), "columns")
    products = replace(node, name=node.scope.made_up(f"{node.name}_products"), inputs=(query, columns))
    scores = node.apply(MulScalar(scalar=scale), [product(products, None, transposed)], "scores")
    shares = node.apply(Softmax(axis=-1), [_masked(node, scores)], "shares")
    return product(replace(node, inputs=(shares, node.symbol(_VALUE, "value"))), None, transposed)


def _masked(node: Node, scores: Symbol) -> Symbol:
    """The scores with those forbidden that are; as they are where there is no mask."""
    forbidden = np.float32(-np.inf)
    if node.flag("causal"):
        mask = np.triu(np.full(node.made(scores.shape[-2:]), forbidden), 1)
        return node.apply(BroadcastAdd(), [scores, node.parameter(mask, "mask")], "masked")
    if not node.has(_MASK) or (node.is_known(_MASK) and not node.shape(_MASK)):
        return scores
    if node.element_types[_MASK] != "boolean":
        return node.apply(BroadcastAdd(), [scores, node.symbol(_MASK, "mask")], "masked")
    if node.is_known(_MASK):
        mask = np.where(node.known(_MASK, "mask"), np.float32(0), forbidden)
        return node.apply(BroadcastAdd(), [scores, node.parameter(mask, "mask")], "masked")
    fill = node.parameter(np.full((1,) * scores.type.rank, forbidden), "forbidden")
    return node.apply(Where(), [node.symbol(_MASK), scores, fill], "masked")
