"""Scalar expressions of TVM: constants, bindings, and indices into arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import ir, sym, tirx

# TVM takes loops of vectors apart for operators that are not marked so; LLVM has this one for vectors.
ir.register_op_attr("tirx.nearbyint", "TVectorizable", True)

Tensor = Any
"""A `te.Tensor`, or a `View` of one; TVM has no types that mypy could check."""
Expression = Any
"""A `tirx.PrimExpr`."""


def bind(value: Expression, body: Callable[[Expression], Expression]) -> Expression:
    """`body(value)` with `value` computed once, so that chains of fused operators do not grow exponentially.

    A value that its limits make constant is not held: TVM refuses a variable that it finds to be one on the way.
    """
    if isinstance(value, (tirx.Max, tirx.Min)) and isinstance(known := sym.Analyzer().simplify(value), tirx.IntImm):
        return body(known)
    held = tirx.Var("held", dtype_of(value))
    return tirx.Let(held, value, body(held))


def dtype_of(value: Expression) -> str:
    """The dtype of a scalar expression."""
    return str(value.ty)


def constant(value: float | int | bool, dtype: str) -> Expression:
    return tirx.const(value, dtype)


def substitute(
    expressions: Sequence[Expression], variables: Sequence[Any], values: Sequence[Expression]
) -> list[Expression]:
    """The expressions with each variable replaced by its value."""
    return list(tirx.IndexMap(list(variables), list(expressions), None).map_indices(list(values)))


def whole_part(x: Expression, divisor: int) -> Expression:
    """floor(x / divisor) of an index x that is not negative and may have an addend.

    TVM 0.27 simplifies the index (i mod n + a) // d to (i + a) mod n // d where d divides n, which is another one for
    the last i; such an i mod n is what is left of an axis where loops are fused. A quotient that is cut off it leaves.
    """
    return tirx.truncdiv(x, divisor)


def remainder(x: Expression, divisor: int) -> Expression:
    """x mod divisor of such an index, which TVM takes for another one, too, where i // n is an index beside it."""
    return tirx.truncmod(x, divisor)


def ravel(at: Sequence[Expression], shape: Sequence[int]) -> Expression:
    """The flat place of an index in an array of `shape`; of an index that `unravel` gave, the place itself."""
    flat: Expression = constant(0, "int32")
    for i, n in zip(at, shape, strict=True):
        flat = flat * n + i
    return sym.Analyzer().simplify(flat)


def unravel(flat: Expression, shape: Sequence[int]) -> list[Expression]:
    """The index in an array of `shape` of a flat place."""
    at: list[Expression] = []
    for axis in reversed(range(len(shape))):
        at.insert(0, flat if axis == 0 else tirx.floormod(flat, shape[axis]))
        flat = tirx.floordiv(flat, shape[axis])
    return at
