"""The operators of integer graphs, which MXNet lacks: shifts, limits, tables, choices, exact roots and quotients."""

from __future__ import annotations

from math import ceil, floor

import numpy as np

from mrt.export.lowering import integer_root, root_fraction
from mrt.export.mxnet.node import Node, exporter
from mrt.symbol import Array, Operator, Symbol
from mrt.symbol.operators.activation import Clip
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.functions import Abs, Floor
from mrt.symbol.operators.integer import Cast, LeftShift, RightShift
from mrt.symbol.operators.integer_math import FloorDivide, FloorMod, IntegerSqrt
from mrt.symbol.operators.normalization import Dropout, Identity
from mrt.symbol.operators.scalar import MulScalar, PlusScalar
from mrt.symbol.operators.selection import Embedding, MaximumScalar, MinimumScalar, Where
from mrt.symbol.operators.state import Assign
from mrt.symbol.operators.table import TableLookup
from mrt.symbol.operators.transform import Take
from mrt.symbol.types import INT32_MAX, INT32_MIN

_LONGEST_SHIFT = 31


@exporter(RightShift)
def right_shift(op: RightShift, node: Node) -> Symbol:
    """floor(x 2^-s + 1/2): a product with a power of two and a sum that has no more than 33 binary digits."""
    scaled = _times_power(node, -1)
    return scaled if scaled is node.input(0) else node.apply(Floor(), [node.apply(PlusScalar(0.5), [scaled])])


@exporter(LeftShift)
def left_shift(op: LeftShift, node: Node) -> Symbol:
    return _times_power(node, 1)


def _times_power(node: Node, sign: int) -> Symbol:
    """x 2^(sign s): a product with one number where s is the same everywhere, else with a tensor."""
    x, shift = node.input(0), node.array(1)
    if shift is None:
        table = _powers(np.arange(_LONGEST_SHIFT + 1), sign)
        return node.apply(BroadcastMul(), [x, node.apply(Take(), [node.constant(table), node.input(1)])])
    factors = _powers(shift, sign)
    if np.unique(factors).size > 1 or node.shape != x.shape:
        return node.apply(BroadcastMul(), [x, factors])
    factor = float(factors.flat[0])
    return x if factor == 1 else node.apply(MulScalar(factor), [x])


def _powers(shift: Array, sign: int) -> Array:
    return np.ldexp(1.0, sign * shift.astype(np.int32))


@exporter(Clip)
def clip(op: Clip, node: Node) -> Symbol:
    """By _maximum_scalar and _minimum_scalar, whose numbers are float64: the limits of MXNet's clip are float32."""
    x, (lo, hi) = node.input(0), (ceil(max(op.a_min, INT32_MIN)), floor(min(op.a_max, INT32_MAX)))
    x = node.apply(MaximumScalar(float(lo)), [x]) if lo > INT32_MIN else x
    return node.apply(MinimumScalar(float(hi)), [x]) if hi < INT32_MAX else x


@exporter(Identity, Dropout, Assign)
def identity(op: Operator, node: Node) -> Symbol:
    return node.input(0)


@exporter(Cast)
def cast(op: Cast, node: Node) -> Symbol:
    """Integers to a dtype that is proven to hold them stay as they are; to a bool, whether they are not 0."""
    return truth(node, 0) if op.dtype == "bool" else node.input(0)


def truth(node: Node, index: int) -> Symbol:
    """1 where an input is not 0."""
    x, bounds = node.input(index), node.bounds(index)
    x = node.apply(Abs(), [x]) if bounds.min < 0 else x
    return node.indicator(x, 0, bounds.magnitude)


@exporter(Where)
def where(op: Where, node: Node) -> Symbol:
    rank = max(len(node.input_shape(1)), len(node.input_shape(2)))
    condition = node.reshaped(truth(node, 0), op.aligned(node.input_shape(0), rank))
    return node.mixed(condition, node.input(1), node.input(2))


@exporter(TableLookup)
def table_lookup(op: TableLookup, node: Node) -> Symbol:
    index = node.plus(node.input(0), op.offset) if op.offset else node.input(0)
    return node.apply(Take(), [node.input(1), index])


@exporter(Embedding)
def embedding(op: Embedding, node: Node) -> Symbol:
    """By take: Embedding's result is float32 unless it says otherwise."""
    return node.reshaped(node.apply(Take(), [node.input(1), node.input(0)]), node.shape)


@exporter(FloorDivide)
def floor_divide(op: FloorDivide, node: Node) -> Symbol:
    return node.quotient(node.input(0), node.input(1))


@exporter(FloorMod)
def floor_mod(op: FloorMod, node: Node) -> Symbol:
    """x - y floor(x / y), whose product lies within y of x."""
    x, divisor = node.input(0), node.input(1)
    return node.minus(x, node.times(node.quotient(x, divisor), divisor))


@exporter(IntegerSqrt)
def integer_sqrt(op: IntegerSqrt, node: Node) -> Symbol:
    """floor(2^f sqrt(x)), one binary digit after the other."""
    x, most = node.input(0), int(node.bounds(0).max)
    if not most:
        return x
    root = integer_root(node, node.constant(np.zeros((1,) * len(x.shape))), x, most)
    return root_fraction(node, root, node.minus(x, node.times(root, root)), op.fraction_bits)
