"""Arithmetic of a tensor and one number."""

from __future__ import annotations

from collections.abc import Callable

from mrt.backend.compute import Kind, compute, record
from mrt.backend.expressions import Expression, Tensor, constant
from mrt.backend.stages import elementwise
from mrt.symbol import Symbol
from mrt.symbol.operators.scalar import (
    DivScalar,
    MinusScalar,
    MulScalar,
    PlusScalar,
    RDivScalar,
    RMinusScalar,
)


def _with_scalar(
    symbol: Symbol, data: Tensor, scalar: float, body: Callable[[Expression, Expression], Expression]
) -> Tensor:
    value = constant(scalar, symbol.dtype)
    return elementwise(symbol, data, body=lambda x: body(x.astype(symbol.dtype), value))


@compute("_plus_scalar", kind=Kind.ELEMENTWISE)
def plus_scalar(symbol: Symbol, data: Tensor) -> Tensor:
    return _with_scalar(symbol, data, record(symbol, PlusScalar).scalar, lambda x, scalar: x + scalar)


@compute("_minus_scalar", kind=Kind.ELEMENTWISE)
def minus_scalar(symbol: Symbol, data: Tensor) -> Tensor:
    return _with_scalar(symbol, data, record(symbol, MinusScalar).scalar, lambda x, scalar: x - scalar)


@compute("_rminus_scalar", kind=Kind.ELEMENTWISE)
def rminus_scalar(symbol: Symbol, data: Tensor) -> Tensor:
    return _with_scalar(symbol, data, record(symbol, RMinusScalar).scalar, lambda x, scalar: scalar - x)


@compute("_mul_scalar", kind=Kind.ELEMENTWISE)
def mul_scalar(symbol: Symbol, data: Tensor) -> Tensor:
    return _with_scalar(symbol, data, record(symbol, MulScalar).scalar, lambda x, scalar: x * scalar)


@compute("_div_scalar", kind=Kind.ELEMENTWISE)
def div_scalar(symbol: Symbol, data: Tensor) -> Tensor:
    return _with_scalar(symbol, data, record(symbol, DivScalar).scalar, lambda x, scalar: x / scalar)


@compute("_rdiv_scalar", kind=Kind.ELEMENTWISE)
def rdiv_scalar(symbol: Symbol, data: Tensor) -> Tensor:
    return _with_scalar(symbol, data, record(symbol, RDivScalar).scalar, lambda x, scalar: scalar / x)
