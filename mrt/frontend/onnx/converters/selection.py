"""Choosing among values: Max, Min, Where, ArgMax and their like."""

from __future__ import annotations

from mrt.frontend.arithmetic import combined
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.selection import MAXIMUM, MINIMUM, chosen, placed
from mrt.symbol import Symbol
from mrt.symbol.operators.selection import ArgMax, ArgMin

_FORMS = {"Max": MAXIMUM, "Min": MINIMUM}


@converter(*_FORMS)
def extreme(node: Node) -> Symbol:
    """The largest or smallest of any number of tensors, with broadcasting; of more than two, one after the other."""
    forms, count = _FORMS[node.operator], len(node.proto.input)
    if count == 2:
        return combined(node, forms)
    result = node.symbol(0)
    for index in range(1, count):
        suffix = "" if index == count - 1 else f"of{index + 1}"
        result = node.apply(forms.broadcast(), [result, node.symbol(index)], suffix)
    return result


@converter("Where")
def where(node: Node) -> Symbol:
    return chosen(node)


@converter("ArgMax", "ArgMin")
def place(node: Node) -> Symbol:
    if node.integer("select_last_index", 0):
        raise node.unsupported("attribute select_last_index", 1, "0")
    kind = ArgMax if node.operator == "ArgMax" else ArgMin
    return placed(node, kind, node.integer("axis", 0), bool(node.integer("keepdims", 1)))
