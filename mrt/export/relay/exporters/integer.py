"""The operators of integer graphs: shifts, casts, tables, exact roots and quotients; in int32 without overflow."""

from __future__ import annotations

import numpy as np

from mrt.export.lowering import integer_root, root_fraction
from mrt.export.relay.expressions import Value
from mrt.export.relay.node import Node, exporter
from mrt.symbol import Array
from mrt.symbol.operators.bitwise import BitwiseAnd
from mrt.symbol.operators.integer import Cast, LeftShift, RightShift
from mrt.symbol.operators.integer_math import FloorDivide, FloorMod, IntegerSqrt
from mrt.symbol.operators.table import TableLookup


@exporter(RightShift)
def right_shift(op: RightShift, node: Node) -> Value:
    """((x >> (s - 1)) + 1) >> 1, and x where s is 0: Relay's right_shift of an int32 is arithmetic."""
    x, shift = node.wide(0), node.array(1)
    once: Value | Array | int
    before: Value | Array | int
    if shift is None:
        once = node.call("minimum", [node.wide(1), 1])
        before = node.call("subtract", [node.wide(1), once])
    else:
        once = node.per_shift(shift, lambda s: np.minimum(s, 1))
        before = node.per_shift(shift, lambda s: np.maximum(s - 1, 0))
        if isinstance(once, int) and once == 0:
            return x
    if not isinstance(before, int) or before:
        x = node.call("right_shift", [x, before])
    return node.call("right_shift", [node.call("add", [x, once]), once])


@exporter(LeftShift)
def left_shift(op: LeftShift, node: Node) -> Value:
    shift = node.array(1)
    return node.call("left_shift", [node.wide(0), node.wide(1) if shift is None else node.per_shift(shift, np.abs)])


@exporter(FloorDivide)
def floor_divide(op: FloorDivide, node: Node) -> Value:
    return node.call("floor_divide", [node.wide(0), node.wide(1)])


@exporter(FloorMod)
def floor_mod(op: FloorMod, node: Node) -> Value:
    return node.call("floor_mod", [node.wide(0), node.wide(1)])


@exporter(BitwiseAnd)
def bitwise_and(op: BitwiseAnd, node: Node) -> Value:
    return node.call("bitwise_and", [node.wide(0), node.wide(1)])


@exporter(Cast)
def cast(op: Cast, node: Node) -> Value:
    """Integers to a dtype that is proven to hold them stay as they are; to a bool, whether they are not 0."""
    bounds = node.bounds(0)
    if op.dtype != "bool" or (bounds.min >= 0 and bounds.max <= 1):
        return node.input(0)
    return node.call("abs", [node.clipped(node.wide(0), -1, 1)])


@exporter(TableLookup)
def table_lookup(op: TableLookup, node: Node) -> Value:
    index = node.call("add", [node.wide(0), op.offset]) if op.offset else node.wide(0)
    return node.call("take", [node.input(1), index], node.shape, {"axis": 0})


@exporter(IntegerSqrt)
def integer_sqrt(op: IntegerSqrt, node: Node) -> Value:
    """floor(2^f sqrt(x)), one binary digit after the other."""
    x, most = node.wide(0), int(node.bounds(0).max)
    if not most:
        return x
    root = integer_root(node, node.constant(0), x, most)
    return root_fraction(node, root, node.minus(x, node.times(root, root)), op.fraction_bits)
