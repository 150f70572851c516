"""Choosing among values: Max, Min, Where, ArgMax and their like."""

from __future__ import annotations

from mrt.errors import GraphError
from mrt.frontend.arithmetic import Arithmetic, combined
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shaping import reshaped
from mrt.symbol import Symbol
from mrt.symbol.operators.selection import (
    ArgMax,
    ArgMin,
    BroadcastMaximum,
    BroadcastMinimum,
    ElemwiseMaximum,
    ElemwiseMinimum,
    MaximumScalar,
    MinimumScalar,
    Where,
)

_FORMS = {
    "Max": Arithmetic(ElemwiseMaximum, BroadcastMaximum, MaximumScalar, MaximumScalar),
    "Min": Arithmetic(ElemwiseMinimum, BroadcastMinimum, MinimumScalar, MinimumScalar),
}


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
    """A condition of fewer axes gets leading ones, since one of rank 1 would choose rows."""
    x, y = node.symbol(1), node.symbol(2)
    rank = max(x.type.rank, y.type.rank)
    given = node.shape(0)
    if len(given) >= rank:
        return node.apply(Where(), [node.symbol(0), x, y])
    shape = (1,) * (rank - len(given)) + given
    if node.is_known(0):
        condition = node.parameter_of(0, "condition", f"rank{rank}", lambda value: value.reshape(shape))
    else:
        condition = reshaped(node, node.symbol(0), shape, "condition")
    return node.apply(Where(), [condition, x, y])


@converter("ArgMax", "ArgMin")
def place(node: Node) -> Symbol:
    """The first place of the extreme along an axis; a float, as in MXNet, where the data is."""
    if node.integer("select_last_index", 0):
        raise node.unsupported("attribute select_last_index", 1, "0")
    data = node.symbol(0)
    if not data.type.rank:
        raise GraphError(f"{node.label}: data is {data.type}; rank 1 or more is needed")
    axis, keepdims = node.axis(node.integer("axis", 0), data.type.rank), bool(node.integer("keepdims", 1))
    operator = (ArgMax if node.operator == "ArgMax" else ArgMin)(axis=axis, keepdims=keepdims)
    is_scalar = data.type.rank == 1 and not keepdims
    # MXNet has no tensors of rank 0.
    found = node.apply(operator, [data], "place" if is_scalar else "")
    return reshaped(node, found, ()) if is_scalar else found
