"""The first elements along an axis in their order, and their places."""

from __future__ import annotations

from mrt.frontend.shared.node import ModelNode
from mrt.symbol import Symbol
from mrt.symbol.operators.ordering import TopK

MOST = 2**14
"""Elements that are put in order at most: each is compared with every other."""


def ordered(node: ModelNode, count: int, axis: int, largest: bool) -> tuple[Symbol, Symbol]:
    """The first `count` elements of the node's data along `axis`, the largest or the smallest first, and their places.

    Of equal ones the lower place comes first. UnsupportedOperatorError beyond MOST elements, GraphError for a count
    that there is not.
    """
    data = node.symbol(0)
    place = node.axis(axis, data.type.rank)
    length = data.shape[place]
    if length > MOST:
        raise node.unsupported("the length of the axis", length, f"at most {MOST}")
    if count < 1 or count > length:
        raise node.unsupported("k", count, f"1 to {length}, the elements that there are,")
    value, where = (TopK(axis=place, k=count, ret_typ=kind, is_ascend=not largest) for kind in ("value", "indices"))
    return node.apply(value, [data]), node.apply(where, [data], "places")
