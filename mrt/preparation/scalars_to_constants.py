"""Writes arithmetic with a constant as broadcast_add and broadcast_mul, the constant on the right."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from mrt.preparation.constants import (
    add_constant,
    compact,
    multiply_by_constant,
    operation_with_constant,
    representable,
)
from mrt.symbol import Array, Graph, GraphBuilder, Property, RewritePass, Symbol
from mrt.symbol.operation import Operation
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.scalar import RDivScalar, WithNumber

_CONSTANT_FREE_TO_MOVE = frozenset({Operation.ADD, Operation.SUBTRACT, Operation.MULTIPLY})
_REWRITTEN = _CONSTANT_FREE_TO_MOVE | {Operation.DIVIDE}


def _constants_on_the_left(graph: Graph) -> str:
    for symbol in graph.operators:
        if symbol.operator.operation in _CONSTANT_FREE_TO_MOVE and len(symbol.inputs) == 2:
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
        operator = symbol.operator
        if not symbol.type.is_float:
            return None
        if isinstance(operator, AddN):
            return _rewrite_sum(symbol, inputs, builder)
        if operator.operation not in _REWRITTEN or isinstance(operator, RDivScalar):
            return None
        if isinstance(operator, WithNumber):
            value = np.full((1,) * symbol.type.rank, operator.scalar, np.float64)
            return _rewrite_binary(symbol, inputs[0], value, operator.number_first, builder)
        left, right = (builder.value(source) for source in inputs)
        if left is None and right is not None:
            return _rewrite_binary(symbol, inputs[0], right, False, builder)
        if left is not None and right is None:
            return _rewrite_binary(symbol, inputs[1], left, True, builder)
        return None


def _rewrite_binary(
    symbol: Symbol, data: Symbol, value: Array, is_first: bool, builder: GraphBuilder
) -> Symbol | str | None:
    """x op c or, with `is_first`, c op x."""
    operation, name, constant = symbol.operator.operation, symbol.name, f"{symbol.name}_constant"
    wide = value.astype(np.float64)
    if not representable(wide, symbol.dtype):
        return "its constant is not finite"
    if operation in (Operation.ADD, Operation.MULTIPLY):
        if not is_first and _is_normal(symbol, value):
            return None
        make = add_constant if operation is Operation.ADD else multiply_by_constant
        return make(builder, data, wide, name, constant)
    if operation is Operation.SUBTRACT:
        if is_first:
            return _subtract_from(symbol, wide, data, builder)
        return add_constant(builder, data, -wide, name, constant)
    if is_first:
        return "it divides a constant by a tensor"
    with np.errstate(divide="ignore"):
        reciprocal = 1 / wide
    if not representable(reciprocal, symbol.dtype):
        return "it divides by a constant that holds 0 or whose reciprocal is infinite"
    return multiply_by_constant(builder, data, reciprocal, name, constant)


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
    if operation_with_constant(symbol) is None or value.ndim != symbol.type.rank:
        return False
    data = symbol.inputs[0]
    shape = (1,) * (value.ndim - data.type.rank) + data.shape
    return bool(compact(value, shape).shape == value.shape)
