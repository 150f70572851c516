"""Elementwise Relay operators: activations, functions, arithmetic with broadcasting, casts."""

from __future__ import annotations

import math

import numpy as np

from mrt.frontend.node import Value
from mrt.frontend.powers import powered
from mrt.frontend.relay.node import Node, converter
from mrt.frontend.selection import chosen
from mrt.frontend.tvm import elementwise
from mrt.frontend.tvm.functions import FUNCTIONS, function
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.activation import LeakyReLU
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.functions import Round
from mrt.symbol.operators.integer import LeftShift
from mrt.symbol.operators.integer_math import FloorDivide
from mrt.symbol.types import INTEGER_DTYPES

_MOST_SHIFTED = 30
"""2 to the power of this is the largest that 32 bits hold."""

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


@converter("add", "subtract", "multiply", "divide")
def arithmetic(node: Node) -> Symbol:
    """Integers keep their dtype, which the result must fit; their division is not covered."""
    dtype = node.result_dtype
    if node.kind == "divide" and dtype != "float32":
        raise node.unsupported("the data", dtype, "a float")
    return node.cast(elementwise.arithmetic(node), dtype)


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


@converter("floor_divide")
def floor_divide(node: Node) -> Symbol:
    """Integers by integers of 1 or more; what is computed must be proven to be that."""
    divisor = node.array(1)
    dtype = node.symbol(1, "divisor").dtype if divisor is None else divisor.dtype.name
    if dtype not in INTEGER_DTYPES or (divisor is not None and divisor.min(initial=1) < 1):
        raise node.unsupported("input divisor", dtype, "an integer of 1 or more")
    return node.cast(node.apply(FloorDivide(), [node.symbol(0), node.symbol(1, "divisor")]), node.result_dtype)


@converter("right_shift")
def right_shift(node: Node) -> Symbol:
    """x >> s rounds down: floor(x / 2^s)."""
    shifts = _shifts(node, _MOST_SHIFTED)
    if shifts is None:
        one = node.parameter(np.asarray(1, np.int32), "one")
        divisor = node.apply(LeftShift(), [one, node.symbol(1, "shift")], "divisor")
    elif math.prod(shifts.shape) == 1 and not shifts.any():
        return node.symbol(0)
    else:
        divisor = node.parameter_of(1, "divisor", "power", lambda s: np.left_shift(1, s.astype(int)).astype(np.int32))
    return node.cast(node.apply(FloorDivide(), [node.symbol(0), divisor]), node.result_dtype)


@converter("left_shift")
def left_shift(node: Node) -> Symbol:
    _shifts(node, _MOST_SHIFTED + 1)
    return node.cast(node.apply(LeftShift(), [node.symbol(0), node.symbol(1, "shift")]), node.result_dtype)


def _shifts(node: Node, most: int) -> Array | None:
    """The shifts where they are known, from 0 to `most`; None where they are computed."""
    shifts = node.array(1)
    dtype = node.symbol(1, "shift").dtype if shifts is None else shifts.dtype.name
    if dtype not in INTEGER_DTYPES or (
        shifts is not None and not (shifts.size and 0 <= shifts.min() <= shifts.max() <= most)
    ):
        raise node.unsupported("input shift", f"of dtype {dtype}", f"integers from 0 to {most}")
    return shifts
