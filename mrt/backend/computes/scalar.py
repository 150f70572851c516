"""Arithmetic of a tensor and one number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from mrt.backend.te.registry import Kind, compute, record
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
    RMinusScalar: lambda x, scalar: scalar - x,
    MulScalar: lambda x, scalar: x * scalar,
    DivScalar: lambda x, scalar: x / scalar,
    RDivScalar: lambda x, scalar: scalar / x,
}
"""What is computed of an element and the number, by operator."""


def with_scalar(symbol: Symbol, data: Tensor, kind: type[Record], body: Body) -> Tensor:
    """The stage of an operator of the record `kind`."""
    scalar = record(symbol, kind).scalar
    # TVM makes x + (-c) of x - c, though the least integer has no negative, and (0 - x) - (-c) of c - x for c below 0.
    is_hidden = scalar == INT32_MIN or (kind is RMinusScalar and scalar < 0)
    value = constant(scalar, symbol.dtype)
    value = opaque(value) if is_hidden else value
    return elementwise(symbol, data, body=lambda x: body(x.astype(symbol.dtype), value))


for _kind, _body in BODIES.items():
    compute(_kind.op, kind=Kind.ELEMENTWISE)(partial(with_scalar, kind=_kind, body=_body))
