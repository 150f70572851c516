"""Choosing among values: where, argmax and argmin."""

from __future__ import annotations

from mrt.frontend.relax.node import Node, converter
from mrt.frontend.shared.selection import chosen
from mrt.frontend.tvm import selection
from mrt.symbol import Symbol

converter("where")(chosen)


@converter("argmax", "argmin")
def place(node: Node) -> Symbol:
    return selection.place(node, node.optional_integer("axis"))
