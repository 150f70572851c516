"""The operators of integer graphs: shifts, casts, tables, exact roots and quotients; in int32 without overflow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mrt.export.lowering import Roots, integer_root, root_fraction
from mrt.export.onnx.node import Node, Value, exporter, int32
from mrt.symbol import Array
from mrt.symbol.operators.integer import Cast, LeftShift, RightShift
from mrt.symbol.operators.integer_math import FloorDivide, FloorMod, IntegerSqrt
from mrt.symbol.operators.table import TableLookup
from mrt.symbol.types import INT32_MAX, INT32_MIN

_LONGEST = 30
"""The longest shift whose power of two an int32 holds."""


@exporter(RightShift)
def right_shift(op: RightShift, node: Node) -> Value:
    """x / 2^s rounded half up.

    ONNX's Div cuts towards 0. For x >= 0 the result is (x + h) div 2^s, h being half of 2^s, or 0 where s is 0; for
    x < 0 it is (x + h - (2^s - 1)) div 2^s. Where bounds do not prove that these sums fit, or the shift is no constant,
    it is computed from the remainder, which takes longer.
    """
    x, shift, bounds = node.wide(0), node.array(node.wide(1)), node.bounds(0)
    if shift is None or shift.max() > _LONGEST:
        return _shifted_by_remainder(node, x)
    power = 1 << shift.astype(np.int64)
    half = power // 2
    if bounds.max + half.max() > INT32_MAX or bounds.min + (half - power).min() + 1 < INT32_MIN:
        return _shifted_by_remainder(node, x)
    if bounds.min >= 0:
        return node.emit("Div", [node.emit("Add", [x, int32(half)]), int32(power)])
    below = node.emit("Less", [x, int32(0)], "bool")
    added = node.emit("Where", [below, int32(half - power + 1), int32(half)], "int32")
    return node.emit("Div", [node.emit("Add", [x, added]), int32(power)])


def _shifted_by_remainder(node: Node, x: Value) -> Value:
    """x / 2^s rounded half up, for every x and s: (x - m) / 2^s + m div 2^(s - 1) with m = x mod 2^s, 0 <= m < 2^s.

    The first quotient is exact, since x - m is a multiple of 2^s and no less than -2^31; the second is 1 where m is
    half of 2^s or more. A shift of 0 has m = 0 and divides by 1. 2^31 is no int32: floor(x / 2) is shifted by 30.
    """
    excess = of_shifts(node, lambda s: 1 << np.maximum(s - _LONGEST, 0))
    if excess is not None:
        x = floor_divided(node, x, excess)
    power = of_shifts(node, lambda s: 1 << np.minimum(s, _LONGEST))
    if power is None:
        return x
    half = of_shifts(node, lambda s: 1 << np.maximum(np.minimum(s, _LONGEST) - 1, 0))
    remainder = node.emit("Mod", [x, power])
    floor = node.emit("Div", [node.emit("Sub", [x, remainder]), power])
    return node.emit("Add", [floor, remainder if half is None else node.emit("Div", [remainder, half])])


@exporter(LeftShift)
def left_shift(op: LeftShift, node: Node) -> Value:
    """x * 2^s; 2^31 is no int32, so that a shift of 31 is one of 30 and one of 1."""
    x = node.wide(0)
    for power in (lambda s: 1 << np.minimum(s, _LONGEST), lambda s: 1 << np.maximum(s - _LONGEST, 0)):
        factor = of_shifts(node, power)
        if factor is not None:
            x = node.emit("Mul", [x, factor])
    return x


def of_shifts(node: Node, function: Callable[[Array], Array]) -> Value | Array | None:
    """function(shift) for the symbol's shift: a constant (None if 1 everywhere), or a look-up of a computed shift."""
    shift = node.wide(1)
    known = node.array(shift)
    if known is None:
        return node.emit("Gather", [node.scope.constant(int32(function(np.arange(32)))), shift], axis=0)
    values = int32(function(known.astype(np.int64)))
    # A shift may broadcast the data, which a factor of 1 does too.
    return None if (values == 1).all() and node.shape == node.input_shape(0) else values


def floor_divided(node: Node, x: Value, divisor: Value | Array) -> Value:
    """floor(x / divisor) for a divisor of at least 1: ONNX's Div cuts towards 0, which differs below 0.

    With n = 1 where x < 0, else 0, it is (x + n) div divisor - n; no sum leaves 32 bits.
    """
    below = node.cast(node.emit("Less", [x, int32(0)], "bool"), "int32")
    return node.emit("Sub", [node.emit("Div", [node.emit("Add", [x, below]), divisor]), below])


@exporter(FloorDivide)
def floor_divide(op: FloorDivide, node: Node) -> Value:
    if node.bounds(0).min >= 0:
        return node.emit("Div", [node.wide(0), node.wide(1)])
    return floor_divided(node, node.wide(0), node.wide(1))


@exporter(FloorMod)
def floor_mod(op: FloorMod, node: Node) -> Value:
    """ONNX's Mod takes the sign of the divisor."""
    return node.emit("Mod", [node.wide(0), node.wide(1)])


@exporter(Cast)
def cast(op: Cast, node: Node) -> Value:
    """Integers to a dtype that is proven to hold them, or to whether they are not 0."""
    return node.cast(node.input(0), op.dtype)


@exporter(TableLookup)
def table_lookup(op: TableLookup, node: Node) -> Value:
    index = node.wide(0)
    if op.offset:
        index = node.emit("Add", [index, int32(op.offset)])
    return node.emit("Gather", [node.input(1), index], axis=0)


@exporter(IntegerSqrt)
def integer_sqrt(op: IntegerSqrt, node: Node) -> Value:
    """floor(2^f sqrt(x)), one binary digit after the other."""
    x, most = node.wide(0), int(node.bounds(0).max)
    if not most:
        return x
    arithmetic = _Arithmetic(node)
    root = integer_root(arithmetic, node.scope.constant(int32(0)), x, most)
    remainder = arithmetic.minus(x, arithmetic.times(root, root))
    return root_fraction(arithmetic, root, remainder, op.fraction_bits)


@dataclass(frozen=True)
class _Arithmetic(Roots[Value]):
    """The steps of an integer root, in int32."""

    node: Node

    def plus(self, value: Value, other: Value | int) -> Value:
        return self.node.emit("Add", [value, _int32_or_value(other)])

    def minus(self, value: Value, other: Value) -> Value:
        return self.node.emit("Sub", [value, other])

    def times(self, value: Value, factor: Value | int) -> Value:
        return self.node.emit("Mul", [value, _int32_or_value(factor)])

    def quotient(self, value: Value, divisor: Value) -> Value:
        return self.node.emit("Div", [value, divisor])

    def chosen(self, large: Value, small: Value, chosen: Value, otherwise: Value) -> Value:
        condition = self.node.emit("GreaterOrEqual", [large, small], "bool")
        return self.node.emit("Where", [condition, chosen, otherwise], "int32")


def _int32_or_value(value: Value | int) -> Value | Array:
    return int32(value) if isinstance(value, int) else value
