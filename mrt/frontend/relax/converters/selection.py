"""Choosing among values: where, argmax and argmin, one_hot."""

from __future__ import annotations

from mrt.frontend.relax.node import Node, converter
from mrt.frontend.shared.ordering import ordered
from mrt.frontend.shared.selection import chosen, hot_rows
from mrt.frontend.shared.shaping import moved_last
from mrt.frontend.tvm import selection
from mrt.symbol import Symbol

converter("where")(chosen)


@converter("argmax", "argmin")
def place(node: Node) -> Symbol:
    return selection.place(node, node.optional_integer("axis"))


@converter("topk")
def top_k(node: Node) -> Symbol | tuple[Symbol, Symbol]:
    """k 0 or less takes all."""
    axis, kind = node.integer("axis"), node.text("ret_type")
    found = ordered(node, _count(node, node.integer("k")), axis, node.flag("largest"))
    return found if kind == "both" else found[kind == "indices"]


@converter("sort", "argsort")
def sort(node: Node) -> Symbol:
    values, places = ordered(node, _count(node, 0), node.integer("axis"), node.flag("descending"))
    return values if node.kind == "sort" else places


def _count(node: Node, given: int) -> int:
    shape = node.shape(0)
    return given if given > 0 else shape[node.axis(node.integer("axis"), len(shape))]


@converter("one_hot")
def one_hot(node: Node) -> Symbol:
    """The second input at the index along a new axis, elsewhere the third."""
    data, on, off = node.symbol(0), node.known_number(1, "on_value"), node.known_number(2, "off_value")
    rank = data.type.rank + 1
    axis = node.axis(node.integer("axis"), rank)
    hot = hot_rows(node, data, node.integer("depth"), off, on, "" if axis == rank - 1 else "last")
    return moved_last(node, hot, axis)
