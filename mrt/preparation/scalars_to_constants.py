"""Writes arithmetic with a constant as broadcast_add and broadcast_mul, the constant on the right."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from mrt.preparation.constants import add_constant, compact, multiply_by_constant, representable
from mrt.symbol import Array, Graph, GraphBuilder, Property, RewritePass, Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastDiv, BroadcastMul, BroadcastSub
from mrt.symbol.operators.elementwise import AddN, ElemwiseAdd, ElemwiseMul, ElemwiseSub
from mrt.symbol.operators.scalar import DivScalar, MinusScalar, MulScalar, PlusScalar, RMinusScalar

_ADD, _SUB, _MUL = (BroadcastAdd, ElemwiseAdd), (BroadcastSub, ElemwiseSub), (BroadcastMul, ElemwiseMul)
_SCALAR = (PlusScalar, MinusScalar, RMinusScalar, MulScalar, DivScalar)
_BINARY = (*_ADD, *_SUB, *_MUL, BroadcastDiv)


def _constants_on_the_left(graph: Graph) -> str:
    for symbol in graph.operators:
        if isinstance(symbol.operator, _BINARY) and not isinstance(symbol.operator, BroadcastDiv):
            left, right = (graph.value(source) is not None for source in symbol.inputs)
            if left and not right and symbol.type.is_float:
                return f"{symbol.name} ({symbol.op})"
    return ""


CONSTANTS_ON_THE_RIGHT = Property("constant operands stand on the right", _constants_on_the_left)


@dataclass(frozen=True)
class ScalarsToConstants(RewritePass):
    """Gives float arithmetic with one constant operand the form x * c or x + c, c a parameter of the result's rank.

    1. x + c, x - c, x * c, x / c, with c a scalar attribute or a parameter: broadcast_add of c or -c, broadcast_mul of
       c or 1/c. A c that holds 0 under a division is left alone.
    2. c + x and c * x: the constant goes to the right. c - x: x * -1, then + c.
    3. add_n: its constant operands are summed and added at the end.
    4. A constant that is uniform along an axis becomes length 1 there if that leaves the result's shape.

    c / x stays, as does what has no constant operand or only constant ones.
    """

    ensures = (CONSTANTS_ON_THE_RIGHT,)

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if not symbol.type.is_float:
            return None
        if isinstance(symbol.operator, AddN):
            return _rewrite_sum(symbol, inputs, builder)
        if isinstance(symbol.operator, _SCALAR):
            value = np.full((1,) * symbol.type.rank, symbol.operator.scalar, np.float64)
            return _rewrite_binary(symbol, inputs[0], value, builder)
        if isinstance(symbol.operator, _BINARY):
            left, right = (builder.value(source) for source in inputs)
            if left is None and right is not None:
                return _rewrite_binary(symbol, inputs[0], right, builder)
            if left is not None and right is None:
                return _rewrite_constant_first(symbol, left, inputs[1], builder)
        return None


def _rewrite_binary(symbol: Symbol, data: Symbol, value: Array, builder: GraphBuilder) -> Symbol | str | None:
    """x op c."""
    operator, name, constant = symbol.operator, symbol.name, f"{symbol.name}_constant"
    wide = value.astype(np.float64)
    if not representable(wide, symbol.dtype):
        return "its constant is not finite"
    if isinstance(operator, (*_ADD, PlusScalar)):
        return None if _is_normal(symbol, value) else add_constant(builder, data, wide, name, constant)
    if isinstance(operator, (*_SUB, MinusScalar)):
        return add_constant(builder, data, -wide, name, constant)
    if isinstance(operator, RMinusScalar):
        return _subtract_from(symbol, wide, data, builder)
    if isinstance(operator, (*_MUL, MulScalar)):
        return None if _is_normal(symbol, value) else multiply_by_constant(builder, data, wide, name, constant)
    with np.errstate(divide="ignore"):
        reciprocal = 1 / wide
    if not representable(reciprocal, symbol.dtype):
        return "it divides by a constant that holds 0 or whose reciprocal is infinite"
    return multiply_by_constant(builder, data, reciprocal, name, constant)


def _rewrite_constant_first(symbol: Symbol, value: Array, data: Symbol, builder: GraphBuilder) -> Symbol | str | None:
    """c op x."""
    operator, name, constant = symbol.operator, symbol.name, f"{symbol.name}_constant"
    wide = value.astype(np.float64)
    if not representable(wide, symbol.dtype):
        return "its constant is not finite"
    if isinstance(operator, _ADD):
        return add_constant(builder, data, wide, name, constant)
    if isinstance(operator, _MUL):
        return multiply_by_constant(builder, data, wide, name, constant)
    if isinstance(operator, _SUB):
        return _subtract_from(symbol, wide, data, builder)
    return "it divides a constant by a tensor"


def _subtract_from(symbol: Symbol, value: Array, data: Symbol, builder: GraphBuilder) -> Symbol:
    """c - x = x * -1 + c."""
    name = f"{symbol.name}_negative"
    minus_one = np.full((1,) * data.type.rank, -1.0)
    negative = multiply_by_constant(builder, data, minus_one, name, f"{name}_constant")
    return add_constant(builder, negative, value, symbol.name, f"{symbol.name}_constant")


def _rewrite_sum(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | str | None:
    values = [value for source in inputs if (value := builder.value(source)) is not None]
    tensors = [source for source in inputs if builder.value(source) is None]
    if not values or not tensors:
        return None
    total = reduce(np.add, [value.astype(np.float64) for value in values])
    if not representable(total, symbol.dtype):
        return "the sum of its constants is not finite"
    data = tensors[0] if len(tensors) == 1 else builder.apply(AddN(), tensors, f"{symbol.name}_tensors")
    return add_constant(builder, data, total, symbol.name, f"{symbol.name}_constant")


def _is_normal(symbol: Symbol, value: Array) -> bool:
    """Whether the symbol has the form that this pass gives, so that it can stay as it is."""
    if not isinstance(symbol.operator, (BroadcastAdd, BroadcastMul)) or value.ndim != symbol.type.rank:
        return False
    data = symbol.inputs[0]
    shape = (1,) * (value.ndim - data.type.rank) + data.shape
    return bool(compact(value, shape).shape == value.shape)
