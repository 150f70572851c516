"""The integer operators: shifts, casts, and the two crossings between floats and integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import te, tirx

from mrt.backend.memory.storage import Storage, View
from mrt.backend.operators.times_ramp import TimesRamp
from mrt.backend.te.operands import FixedForm, Operand, Packed, Surroundings
from mrt.backend.te.packing import laid_operand
from mrt.backend.te.reciprocal import reciprocal_of
from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.rounding import Rounding, choose_rounding, half_of
from mrt.backend.te.stages import elementwise
from mrt.backend.tir.expressions import Expression, Tensor, bind, constant, llvm_call, once
from mrt.backend.tir.expressions import cast as to
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.integer import Cast, Dequantize, LeftShift, Quantize, RightShift
from mrt.symbol.rounding import HALF_EVEN, HALF_ODD, SIGN
from mrt.symbol.types import type_of


def pack_shift(symbol: Symbol, shift: Array, surroundings: Surroundings) -> Packed | None:
    """Constant shifts for the cheapest exact form of rounding, with 2^(s-1) where that form adds it.

    Not for int64, which only graphs without a proof hold.
    """
    if symbol.dtype == "int64":
        return None
    form = choose_rounding(surroundings.bounds[0], shift, symbol.dtype)
    if form is None:
        return None
    inner = surroundings.walk.inner
    if form is Rounding.TWO_SHIFTS:
        return laid_operand(symbol, 1, (shift - 1).astype(shift.dtype), inner, form)
    by, half = (laid_operand(symbol, 1, x, inner, form) for x in (shift, half_of(shift).astype(np.int32)))
    return Packed(form, by.arrays + half.arrays, by.storages + half.storages)


@compute(RightShift, kind=Kind.ELEMENTWISE, packings={1: pack_shift})
def right_shift(symbol: Symbol, data: Tensor, shift: Tensor | Operand) -> Tensor:
    """x for s = 0, else ((x >> (s-1)) + 1) >> 1; constant shifts have a cheaper form where one is exact.

    Of y = x >> (s-1) the sum y + 1 might overflow where s is 1: it is computed as (y >> 1) + (y & 1).
    """
    dtype = symbol.dtype
    zero, one = constant(0, dtype), constant(1, dtype)
    if isinstance(shift, Operand):
        return _rounded(symbol, data, shift)

    def rounded(x: Expression, s: Expression) -> Expression:
        halves = x >> te.max(s - one, zero)
        return tirx.Select(s == zero, x, bind(halves, lambda y: (y >> one) + (y & one)))

    return elementwise(
        symbol,
        data,
        shift,
        body=lambda x, s: bind(x.astype(dtype), lambda v: bind(s.astype(dtype), lambda by: rounded(v, by))),
    )


def _rounded(symbol: Symbol, data: Tensor, shift: Operand) -> View:
    dtype = symbol.dtype
    one = constant(1, dtype)
    if shift.form is Rounding.TWO_SHIFTS:
        (less_one,) = shift.views
        return elementwise(
            symbol, data, less_one, body=lambda x, s: ((x.astype(dtype) >> s.astype(dtype)) + one) >> one
        )
    non_negative = shift.form is Rounding.UNSIGNED
    wide = f"u{dtype}" if non_negative else dtype

    def element(x: Expression, s: Expression, half: Expression) -> Expression:
        return ((x.astype(wide) + half.astype(wide)) >> s.astype(wide)).astype(dtype)

    return elementwise(symbol, data, *shift.views, body=element, non_negative=non_negative)


@compute(LeftShift, kind=Kind.ELEMENTWISE)
def left_shift(symbol: Symbol, data: Tensor, shift: Tensor) -> Tensor:
    return elementwise(symbol, data, shift, body=lambda x, s: x.astype(symbol.dtype) << s.astype(symbol.dtype))


@compute(TimesRamp, kind=Kind.ELEMENTWISE, repeats_input=True)
def times_ramp(symbol: Symbol[TimesRamp], data: Tensor, start: Tensor, most: Tensor) -> Tensor:
    zero, finer = constant(0, "int32"), symbol.operator.finer
    by, half = constant(abs(finer), "int32"), constant((1 << abs(finer)) >> 1, "int32")

    def element(x: Expression, first: Expression, last: Expression) -> Expression:
        scaled = x << by if finer > 0 else (x + half) >> by if finer else x
        return x * te.min(te.max(scaled + first, zero), last)

    return elementwise(
        symbol, data, start, most, body=lambda x, *rest: once(x.astype("int32"), lambda v: element(v, *rest))
    )


@compute(Cast, kind=Kind.ELEMENTWISE)
def cast(symbol: Symbol, data: Tensor) -> Tensor:
    """Floats are truncated towards zero."""
    if symbol.dtype == "bool" and data.dtype != "bool":
        return elementwise(symbol, data, body=lambda x: tirx.NE(x, constant(0, data.dtype)))
    return elementwise(symbol, data, body=lambda x: to(x, symbol.dtype))


EXACT_IN_FLOAT32 = 2**24
"""Float32 holds every integer up to this one."""
MULTIPLIES_AND_ADDS = 512
"""All machines with vectors of so many bits have fused multiply-add."""


def pack_step(symbol: Symbol[Quantize], scale: Array, surroundings: Surroundings) -> Packed | None:
    """The scale as two factors for fused multiply-add; None where the division stays."""
    if surroundings.machine.vector_bits < MULTIPLIES_AND_ADDS or not symbol.operator.is_half_even:
        return None
    operator, zero_point = symbol.operator, surroundings.bounds[2]
    parts = reciprocal_of(scale, int(operator.a_min - zero_point.max), int(operator.a_max - zero_point.min))
    if parts is None:
        return None
    return Packed(FixedForm(), parts, tuple(Storage.plain(type_of(part)) for part in parts))


def pack_zero_point(symbol: Symbol[Quantize], zero_point: Array, surroundings: Surroundings) -> Packed | None:
    """A single zero point is the form itself."""
    is_single = zero_point.size == 1 and symbol.operator.is_half_even
    return Packed.as_is(zero_point, int(zero_point.item())) if is_single else None


def _by_sign(x: Expression, below: Expression, above: Expression) -> Expression:
    return tirx.Select(x < constant(0, "float32"), below, above)


_HALF = 0.5
_ROUNDINGS: dict[str, Callable[[Expression], Expression]] = {
    HALF_EVEN: tirx.nearbyint,
    HALF_ODD: lambda x: tirx.nearbyint(x - constant(1, "float32")) + constant(1, "float32"),
    "floor": tirx.floor,
    "ceil": tirx.ceil,
    "toward_zero": tirx.trunc,
    "away_from_zero": lambda x: _by_sign(x, tirx.floor(x), tirx.ceil(x)),
    "half_away_from_zero": lambda x: _by_sign(
        x, -tirx.floor(constant(_HALF, "float32") - x), tirx.floor(x + constant(_HALF, "float32"))
    ),
    "half_toward_zero": lambda x: _by_sign(
        x, -tirx.ceil(-x - constant(_HALF, "float32")), tirx.ceil(x - constant(_HALF, "float32"))
    ),
    SIGN: lambda x: _by_sign(x, constant(-1, "float32"), constant(1, "float32")),
}
"""`ROUNDINGS` on float32."""


@compute(Quantize, kind=Kind.ELEMENTWISE, packings={1: pack_step, 2: pack_zero_point})
def quantize(symbol: Symbol[Quantize], data: Tensor, scale: Tensor | Operand, zero_point: Tensor | Operand) -> Tensor:
    """The quotient is float32 and is rounded; the sum and the clip that follow are exact.

    It is clipped to what some zero point brings into the range before it becomes an integer, so that float32 holds the
    limits. With a known zero point that is the only clip.
    """
    operator = symbol.operator
    if operator.zero_point_first:
        return _moved_then_rounded(symbol, data, scale, zero_point)
    round_to = _ROUNDINGS[operator.rounding]
    scales = scale.views if isinstance(scale, Operand) else (scale,)
    known = zero_point.form if isinstance(zero_point, Operand) else None
    moves = zero_point.views[0] if isinstance(zero_point, Operand) else zero_point
    least, most = np.iinfo(moves.dtype).min, np.iinfo(moves.dtype).max
    if known is not None:
        least, most = known, known
    lowest, highest = operator.a_min - most, operator.a_max - least
    wide, integer = ("float32", "int32") if max(-lowest, highest) <= EXACT_IN_FLOAT32 else ("float64", "int64")

    def element(x: Expression, zero: Expression, *steps: Expression) -> Expression:
        rounded = once(x, lambda value: round_to(_quotient(value.astype("float32"), *steps))).astype(wide)
        held = te.max(te.min(rounded, constant(highest, wide)), constant(lowest, wide)).astype(integer)
        if known is not None:
            return (held + constant(known, integer)).astype(symbol.dtype)
        moved = held + zero.astype(integer)
        clipped = te.max(te.min(moved, constant(operator.a_max, integer)), constant(operator.a_min, integer))
        return clipped.astype(symbol.dtype)

    return elementwise(symbol, data, moves, *scales, body=element)


def _moved_then_rounded(symbol: Symbol[Quantize], data: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """clip(round(x / scale + zero_point)), the sum float32 too; the limits in float64, which holds them."""
    operator = symbol.operator
    lowest, highest = (constant(float(end), "float64") for end in (operator.a_min, operator.a_max))

    def element(x: Expression, step: Expression, zero: Expression) -> Expression:
        def rounding(value: Expression) -> Expression:
            moved = _quotient(value.astype("float32"), step) + zero.astype("float32")
            return _ROUNDINGS[operator.rounding](moved)

        rounded = once(x, rounding).astype("float64")
        return te.max(te.min(rounded, highest), lowest).astype("int32").astype(symbol.dtype)

    return elementwise(symbol, data, scale, zero_point, body=element)


def _quotient(x: Expression, scale: Expression, low: Expression | None = None) -> Expression:
    """x / scale, or its equal by the two factors of `reciprocal_of`."""
    if low is None:
        return x / scale.astype("float32")
    return llvm_call("float32", "llvm.fma", x, scale, x * low)


@compute(Dequantize, kind=Kind.ELEMENTWISE)
def dequantize(symbol: Symbol, data: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """scale * (q - zero_point) in float64, rounded once to float32."""

    def element(q: Expression, step: Expression, zero: Expression) -> Expression:
        return (step.astype("float64") * (q.astype("float64") - zero.astype("float64"))).astype(symbol.dtype)

    return elementwise(symbol, data, scale, zero_point, body=element)
