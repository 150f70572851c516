"""The place of an extreme: argmax and argmin."""

from __future__ import annotations

from mrt.frontend.shared.selection import placed
from mrt.frontend.tvm.node import TVMNode
from mrt.symbol import Symbol
from mrt.symbol.operators.selection import ArgMax, ArgMin


def place(node: TVMNode, axis: int | None) -> Symbol:
    """No axis given means all of them."""
    return placed(node, ArgMax if node.kind == "argmax" else ArgMin, axis, node.flag("keepdims"))
