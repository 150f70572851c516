"""Elementwise Relay operators: activations, functions, arithmetic with broadcasting, casts."""

from __future__ import annotations

from mrt.frontend.relay.node import Node, converter
from mrt.frontend.shared.node import Value
from mrt.frontend.shared.powers import powered
from mrt.frontend.shared.selection import chosen
from mrt.frontend.tvm import elementwise
from mrt.frontend.tvm.functions import FUNCTIONS, function
from mrt.symbol import Symbol
from mrt.symbol.operators.activation import LeakyReLU
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.functions import Round

converter(*FUNCTIONS)(function)
converter("maximum", "minimum")(elementwise.extremum)
converter("nn.dropout")(elementwise.dropout)
converter("nn.prelu")(elementwise.prelu)
converter("power")(powered)
converter("where")(chosen)
converter("cast")(elementwise.cast)


@converter("round")
def round_half_away(node: Node) -> Symbol:
    """Halves away from zero, as the C library rounds and TVM's LLVM code of Relay's time does."""
    return node.apply(Round(), [node.symbol(0)])


@converter("nn.leaky_relu")
def leaky_relu(node: Node) -> Symbol:
    return node.apply(LeakyReLU(slope=node.number("alpha")), [node.symbol(0)])


@converter("clip")
def clip(node: Node) -> Symbol:
    return elementwise.merged_clip(node, node.symbol(0), node.number("a_min"), node.number("a_max"))


@converter("add", "subtract", "multiply")
def arithmetic(node: Node) -> Symbol:
    """Integers keep their dtype, which the result must fit."""
    return node.cast(elementwise.arithmetic(node), node.result_dtype)


@converter("negative")
def negative(node: Node) -> Symbol:
    return node.cast(elementwise.negative(node), node.result_dtype)


@converter("nn.bias_add")
def bias_add(node: Node) -> Symbol:
    """A vector along one axis."""
    data, bias = node.symbol(0), node.shape(1)
    axis = node.axis(node.integer("axis"), data.type.rank)
    if bias != data.shape[axis : axis + 1]:
        raise node.unsupported("input bias", f"of shape {bias}", f"a vector of {data.shape[axis]}")
    column = bias + (1,) * (data.type.rank - axis - 1)
    if not node.is_known(1):
        raise node.unsupported("input bias", "computed from the data", "a constant")
    vector = node.parameter_of(1, "bias", "" if len(column) == 1 else "column", lambda array: array.reshape(column))
    return node.cast(node.apply(BroadcastAdd(), [data, vector]), node.result_dtype)


@converter("copy", "annotation.stop_fusion")
def identity(node: Node) -> Value:
    return node.input(0)


@converter("cast_like")
def cast_like(node: Node) -> Symbol:
    return node.cast(node.symbol(0), node.symbol(1).dtype)
