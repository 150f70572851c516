"""Choosing among values and marking a choice: Max, Min, Where, ArgMax, OneHot and their like."""

from __future__ import annotations

import math

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shared.arithmetic import combined
from mrt.frontend.shared.ordering import ordered
from mrt.frontend.shared.selection import MAXIMUM, MINIMUM, chosen, hot_rows, placed
from mrt.frontend.shared.shaping import moved_last, reshaped
from mrt.frontend.shared.slicing import sliced
from mrt.symbol import Symbol
from mrt.symbol.operators.scalar import RMinusScalar
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


@converter("TopK")
def top_k(node: Node) -> tuple[Symbol, Symbol]:
    """k is an attribute before opset 10; results that need not be sorted are."""
    count = node.known_integers(1, "k")[0] if node.has(1) else node.integer("k", 0)
    return ordered(node, count, node.integer("axis", -1), bool(node.integer("largest", 1)))


@converter("ArgMax", "ArgMin")
def place(node: Node) -> Symbol:
    """The first of equal extremes, or with select_last_index the last: the first from the end."""
    kind = ArgMax if node.operator == "ArgMax" else ArgMin
    axis, keepdims = node.integer("axis", 0), bool(node.integer("keepdims", 1))
    if not node.integer("select_last_index", 0):
        return placed(node, kind, axis, keepdims)
    data = node.symbol(0)
    place = node.axis(axis, data.type.rank)
    backwards = sliced(node, data, {place: slice(None, None, -1)}, "backwards")
    found = node.apply(kind(axis=place, keepdims=True), [backwards], "place")
    last = node.apply(RMinusScalar(data.shape[place] - 1), [found], "" if keepdims else "from_front")
    return last if keepdims else reshaped(node, last, (*data.shape[:place], *data.shape[place + 1 :]))


@converter("OneHot")
def one_hot(node: Node) -> Symbol:
    """values[1] at the index along a new axis, elsewhere values[0]; negative indices count from the end."""
    data, depth, values = node.symbol(0), node.known_number(1, "depth"), node.known(2, "values")
    if not depth.is_integer() or depth < 1 or values.shape != (2,):
        raise GraphError(f"{node.label}: depth is {depth}, values {values.shape}; a whole number and two are needed")
    rank = data.type.rank + 1
    axis = node.axis(node.integer("axis", -1), rank)
    numbers = float(values[0]), float(values[1])
    hot = hot_rows(node, data, int(depth), *numbers, "" if axis == rank - 1 else "last", wraps=True)
    return moved_last(node, hot, axis)


@converter("Hardmax")
def hardmax(node: Node) -> Symbol:
    """1 at the first largest element along an axis, else 0; before opset 13 over all axes from `axis` on."""
    data = node.symbol(0)
    rank = data.type.rank
    axis = node.axis(node.integer("axis", -1 if node.opset >= 13 else 1), rank)
    merged = data
    if node.opset < 13:
        merged = reshaped(node, data, (*data.shape[:axis], math.prod(data.shape[axis:])), "merged")
    places = node.apply(ArgMax(axis=axis), [merged], "place")
    hot = hot_rows(node, places, merged.shape[axis], 0.0, 1.0, "last")
    return reshaped(node, moved_last(node, hot, axis), data.shape)
