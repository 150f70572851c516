"""Relay operators of integers: divisions and what they leave, shifts, logic on bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mrt.frontend.relay.node import Node, converter
from mrt.frontend.tvm import elementwise
from mrt.frontend.tvm.division import cut_quotient, cut_remainder
from mrt.symbol import Array, Operator, Symbol
from mrt.symbol.operators.bitwise import BitwiseAnd
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.integer import LeftShift
from mrt.symbol.operators.integer_math import FloorDivide, FloorMod
from mrt.symbol.types import INTEGER_DTYPES


@converter("divide")
def divide(node: Node) -> Symbol:
    """x / y; for integers the quotient is cut towards 0."""
    if node.result_dtype == "float32":
        return elementwise.arithmetic(node)
    return _divided(node, cut_quotient)


@converter("mod")
def mod(node: Node) -> Symbol:
    """What is left of a quotient cut towards 0, with the sign of the first one."""
    if node.result_dtype == "float32":
        return elementwise.remainder(node)
    return _divided(node, cut_remainder)


@converter("floor_divide")
def floor_divide(node: Node) -> Symbol:
    if node.result_dtype == "float32":
        return elementwise.whole_quotient(node)
    return _divided(node, _by(FloorDivide()))


@converter("floor_mod")
def floor_mod(node: Node) -> Symbol:
    if node.result_dtype == "float32":
        return elementwise.remainder(node)
    return _divided(node, _by(FloorMod()))


def _by(operator: Operator) -> Callable[[Node, Symbol, Symbol], Symbol]:
    return lambda node, data, divisor: node.apply(operator, [data, divisor])


def _divided(node: Node, divide: Callable[[Node, Symbol, Symbol], Symbol]) -> Symbol:
    """Integers by integers of 1 or more; what is computed must be proven to be that."""
    data, divisor = node.symbol(0, "dividend"), node.array(1)
    dtype = node.symbol(1, "divisor").dtype if divisor is None else divisor.dtype.name
    if data.type.is_float or dtype not in INTEGER_DTYPES:
        raise node.unsupported("the data", f"{data.dtype} by {dtype}", "an integer by an integer")
    if divisor is not None and divisor.min(initial=1) < 1:
        raise node.unsupported("input divisor", int(divisor.min()), "an integer of 1 or more")
    return node.cast(divide(node, data, node.symbol(1, "divisor")), node.result_dtype)


@converter("bitwise_and")
def bitwise_and(node: Node) -> Symbol:
    lhs, rhs = node.symbol(0, "lhs"), node.symbol(1, "rhs")
    if lhs.type.is_float or rhs.type.is_float:
        raise node.unsupported("the data", f"{lhs.dtype} and {rhs.dtype}", "integers")
    return node.cast(node.apply(BitwiseAnd(), [lhs, rhs]), node.result_dtype)


@converter("right_shift")
def right_shift(node: Node) -> Symbol:
    """x >> s rounds down: floor(x / 2^s), a power that the dtype does not hold by two divisions."""
    data, shifts = node.symbol(0, "data"), _shifts(node)
    if shifts is None:
        one = node.parameter(np.asarray(1, np.int32), "one")
        divisor = node.apply(LeftShift(), [one, node.symbol(1, "shift")], "divisor")
        return node.cast(node.apply(FloorDivide(), [data, divisor]), node.result_dtype)
    if shifts.size == 1 and not shifts.any():
        return data
    first, rest = _powers(node, shifts)
    if (rest > 1).any():
        data = node.apply(FloorDivide(), [data, node.parameter(rest, "divisor_rest")], "by_rest")
    return node.cast(node.apply(FloorDivide(), [data, node.parameter(first, "divisor")]), node.result_dtype)


@converter("left_shift")
def left_shift(node: Node) -> Symbol:
    """x << s, which must fit the dtype."""
    data, shifts = node.symbol(0, "data"), _shifts(node)
    if shifts is None or data.dtype != "int64":
        return node.cast(node.apply(LeftShift(), [data, node.symbol(1, "shift")]), node.result_dtype)
    first, rest = _powers(node, shifts)
    if (rest > 1).any():
        data = node.apply(BroadcastMul(), [data, node.parameter(rest, "factor_rest")], "by_rest")
    return node.cast(node.apply(BroadcastMul(), [data, node.parameter(first, "factor")]), node.result_dtype)


def _powers(node: Node, shifts: Array) -> tuple[Array, Array]:
    """2^s as two factors that the dtype of the data holds, the second 1 where the first does."""
    dtype = np.dtype("int64" if node.symbol(0, "data").dtype == "int64" else "int32")
    first = np.minimum(shifts.astype(np.int64), np.iinfo(dtype).bits - 2)
    powers = [np.left_shift(np.int64(1), part).astype(dtype) for part in (first, shifts - first)]
    return powers[0], powers[1]


def _shifts(node: Node) -> Array | None:
    """The shifts where they are known, from 0 to one less than the data has bits; None where they are computed."""
    data, shifts = node.symbol(0, "data"), node.array(1)
    dtype = node.symbol(1, "shift").dtype if shifts is None else shifts.dtype.name
    if data.type.is_float or dtype not in INTEGER_DTYPES:
        raise node.unsupported("input shift", f"of dtype {dtype} for {data.dtype}", "an integer for integers")
    most = np.dtype(data.dtype).itemsize * 8 - 1
    if shifts is not None and not (shifts.size and 0 <= shifts.min() <= shifts.max() <= most):
        found = f"from {shifts.min()} to {shifts.max()}" if shifts.size else "empty"
        raise node.unsupported("input shift", found, f"0 to {most} for {data.dtype}")
    return shifts
