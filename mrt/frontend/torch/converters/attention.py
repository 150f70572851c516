"""Attention, of matrix products and a softmax."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from mrt.frontend.torch.node import Expression, Node, constant, converter, dtype_of, shape_of


@converter("scaled_dot_product_attention.default")
def attention(node: Node) -> Expression:
    """softmax(scale Q K^T + mask) V over the last two axes; scale is 1 / sqrt(the length of a query) if not given.

    A mask of truth values forbids what is false; is_causal allows no key behind the query. With enable_gqa several
    heads of queries share one of keys and values.
    """
    query, key, value = (node.tensor(name) for name in ("query", "key", "value"))
    if node.flag("enable_gqa"):
        times = shape_of(query)[-3] // shape_of(key)[-3]
        key, value = (node.emit(relax.op.repeat(tensor, times, len(shape_of(tensor)) - 3)) for tensor in (key, value))
    rank = len(shape_of(key))
    scale = node.number("scale") if node.has("scale") else 1 / math.sqrt(shape_of(query)[-1])
    columns = node.emit(relax.op.permute_dims(key, [*range(rank - 2), rank - 1, rank - 2]))
    scores = node.emit(relax.op.multiply(node.emit(relax.op.matmul(query, columns)), constant(scale)))
    mask = _mask(node, shape_of(scores))
    if mask is not None:
        scores = node.emit(relax.op.add(scores, mask))
    return relax.op.matmul(node.emit(relax.op.nn.softmax(scores, -1)), value)


def _mask(node: Node, scores: tuple[int, ...]) -> Expression | None:
    """What is added to the scores, None where nothing is."""
    if node.flag("is_causal"):
        return constant(np.triu(np.full(node.made(*scores[-2:]), -np.inf), 1))
    if not node.has("attn_mask"):
        return None
    mask = node.tensor("attn_mask")
    if dtype_of(mask) != "bool":
        return mask
    return node.emit(relax.op.where(mask, constant(0), constant(-np.inf)))
