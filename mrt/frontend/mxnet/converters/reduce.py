"""Reductions that are made of others: products and norms."""

from __future__ import annotations

from mrt.errors import GraphError
from mrt.frontend.mxnet.node import Node, converter
from mrt.frontend.shared import reductions
from mrt.frontend.shared.shaping import reshaped
from mrt.symbol import Symbol
from mrt.symbol.operators.reduce import Sum


@converter("prod")
def product(node: Node) -> Symbol:
    data, like = node.only_symbol(), _sum_of_the_same(node)
    result = reductions.product(node, like.axes(data.type.rank), like.keepdims)
    return reshaped(node, result, like.infer(data.type).shape)


@converter("norm")
def norm(node: Node) -> Symbol:
    """ord 1: the sum of magnitudes; ord 2: the root of the sum of squares."""
    data, order = node.only_symbol(), node.integer("ord", 2)
    if order not in (1, 2):
        raise node.unsupported("attribute ord", order, "1 or 2")
    like = _sum_of_the_same(node, ord=None, out_dtype=None)
    result = reductions.reduced(node, reductions.REDUCTIONS[f"l{order}"], like.axes(data.type.rank), like.keepdims)
    return reshaped(node, result, like.infer(data.type).shape)


def _sum_of_the_same(node: Node, **changes: str | None) -> Sum:
    """The sum over the axes that the node names; MXNet gives a shape of one axis where it has none left."""
    record = node.record("sum", **changes)
    if not isinstance(record, Sum):
        raise GraphError(f"{node.label}: is no reduction")
    return record
