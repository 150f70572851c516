"""Sums, differences, products and quotients of tensors, of the same shape or broadcast."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add, mul, sub, truediv

from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import elementwise
from mrt.backend.tir.expressions import Expression, Tensor
from mrt.symbol import Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastDiv, BroadcastMul, BroadcastSub
from mrt.symbol.operators.elementwise import AddN, ElemwiseAdd, ElemwiseMul, ElemwiseSub


def _of_operands(symbol: Symbol, operation: Callable[..., Expression], *inputs: Tensor) -> Tensor:
    """`operation` on the operands' elements, each in the result's dtype."""
    return elementwise(symbol, *inputs, body=lambda *xs: reduce(operation, (x.astype(symbol.dtype) for x in xs)))


@compute(ElemwiseAdd, BroadcastAdd, AddN, kind=Kind.ELEMENTWISE)
def sum_of(symbol: Symbol, *terms: Tensor) -> Tensor:
    return _of_operands(symbol, add, *terms)


@compute(ElemwiseSub, BroadcastSub, kind=Kind.ELEMENTWISE)
def difference(symbol: Symbol, lhs: Tensor, rhs: Tensor) -> Tensor:
    return _of_operands(symbol, sub, lhs, rhs)


@compute(ElemwiseMul, BroadcastMul, kind=Kind.ELEMENTWISE)
def product(symbol: Symbol, lhs: Tensor, rhs: Tensor) -> Tensor:
    return _of_operands(symbol, mul, lhs, rhs)


@compute(BroadcastDiv, kind=Kind.ELEMENTWISE)
def quotient(symbol: Symbol, lhs: Tensor, rhs: Tensor) -> Tensor:
    return _of_operands(symbol, truediv, lhs, rhs)
