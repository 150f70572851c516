"""Scalar expressions of TVM: constants, bindings, and indices into arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import ir, sym, tirx
from tvm.ir import prim

from mrt.symbol.bounds import DTYPE_RANGES

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


WITHIN = -DTYPE_RANGES["int32"][0]
"""Numbers of less magnitude are int32, whatever their sign."""
_REACHES: Mapping[Any, Callable[[int, int], int]] = {
    prim.Add: int.__add__,
    prim.Sub: int.__add__,
    prim.Max: int.__add__,
    prim.Min: int.__add__,
    prim.Mul: int.__mul__,
}


def combined(body: Callable[..., Expression], operands: Sequence[Expression]) -> Expression:
    """`body` of the operands, such that all that TVM makes of it stays as near to what is proven as it is written.

    TVM's simplifier takes int32 for whole numbers without end; LLVM and C take it that no sum, difference or product of
    int32 leaves them. The certificate bounds x + c and (x + c) + y, but not x + y, which TVM computes to add c at last;
    and max(x, c) - c may become max(x - c, 0). Therefore, unless all that can be made of the terms stays within int32,
    each operand is a term that TVM takes as a whole. That is no instruction: LLVM and C are given the operand itself.
    """
    made = body(*operands)
    if dtype_of(made) not in ("int32", "bool") or _reach(made) < WITHIN:
        return made
    return body(*map(as_term, operands))


def as_term(value: Expression) -> Expression:
    """The same number; a sum, say, that TVM's simplifier shall not combine with the terms of the one around it."""
    return opaque(value) if isinstance(value, _TAKEN_APART) else value


def cast(value: Expression, dtype: str) -> Expression:
    """`value` in a dtype that holds it.

    TVM casts the limits of what it binds, too, and refuses one that an integer dtype does not hold, though no value
    comes to it. Of bits it looks for no limits.
    """
    fits = dtype not in DTYPE_RANGES or _limits_fit(value, *DTYPE_RANGES[dtype])
    return (value if fits else value | constant(0, dtype_of(value))).astype(dtype)


def _limits_fit(value: Expression, lo: int, hi: int) -> bool:
    if isinstance(value, prim.IntImm):
        return lo <= int(value) <= hi
    if isinstance(value, ir.Call) and value.op.name == SEAL:
        return _limits_fit(value.args[0], lo, hi)
    return type(value) not in _REACHES or all(_limits_fit(x, lo, hi) for x in (value.a, value.b))


SEAL = "tirx.reinterpret"
"""TVM's operator that gives the same bits in another dtype, or in the same one; `StmtSimplify` keeps it."""


def opaque(value: Expression) -> Expression:
    """The same number, of which TVM's simplifier knows no more than its dtype, int32."""
    return value if dtype_of(value) != "int32" else ir.Call(SEAL, [value], ret_ty="int32")


_TAKEN_APART = (*_REACHES, prim.IntImm, prim.FloorDiv, prim.FloorMod, prim.Select, prim.Let)
"""Expressions whose operands TVM's simplifier combines with those of the expression around them."""


def _reach(value: Expression) -> int:
    """What no number exceeds in magnitude that is combined of terms of `value`, however they are arranged.

    Each term counts as 1 at least, so that factors of 0 hide nothing.
    """
    if isinstance(value, prim.IntImm):
        return max(abs(int(value)), 1)
    if isinstance(value, prim.Cast):
        return max(map(abs, DTYPE_RANGES.get(dtype_of(value.value), (WITHIN,))))
    if type(value) in _REACHES:
        return _REACHES[type(value)](_reach(value.a), _reach(value.b))
    return WITHIN


def dtype_of(value: Expression) -> str:
    """The dtype of a scalar expression."""
    return str(value.ty)


def ordered(dtype: str) -> str:
    """The dtype in which numbers of `dtype` are compared: TVM knows no greater one of two bool."""
    return "uint8" if dtype == "bool" else dtype


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
