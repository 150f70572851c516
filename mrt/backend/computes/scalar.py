"""Arithmetic of a tensor and one number."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import elementwise
from mrt.backend.tir.expressions import Expression, Tensor, constant, opaque
from mrt.symbol import Symbol
from mrt.symbol.operators.scalar import (
    DivScalar,
    MinusScalar,
    MulScalar,
    PlusScalar,
    RDivScalar,
    RMinusScalar,
)
from mrt.symbol.types import INT32_MIN

Body = Callable[[Expression, Expression], Expression]
Record = PlusScalar | MinusScalar | RMinusScalar | MulScalar | DivScalar | RDivScalar

BODIES: Mapping[type[Record], Body] = {
    PlusScalar: lambda x, scalar: x + scalar,
    MinusScalar: lambda x, scalar: x - scalar,
    MulScalar: lambda x, scalar: x * scalar,
    DivScalar: lambda x, scalar: x / scalar,
    RDivScalar: lambda x, scalar: scalar / x,
}
"""What is computed of an element x and the number, by record; RMinusScalar is registered by itself."""


def _register(record: type[Record], body: Body, hidden_below: int = INT32_MIN + 1) -> None:
    """hidden_below: TVM is not shown numbers below this one, since it would negate them."""

    @compute(record, kind=Kind.ELEMENTWISE)
    def with_scalar(symbol: Symbol[Record], data: Tensor) -> Tensor:
        value = constant(symbol.operator.scalar, symbol.dtype)
        value = opaque(value) if symbol.operator.scalar < hidden_below else value
        return elementwise(symbol, data, body=lambda x: body(x.astype(symbol.dtype), value))


# TVM makes x + (-c) of x - c, though the least integer has no negative.
for _record, _body in BODIES.items():
    _register(_record, _body)
# It makes (0 - x) - (-c) of c - x for c below 0.
_register(RMinusScalar, lambda x, scalar: scalar - x, hidden_below=0)
