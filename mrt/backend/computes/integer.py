"""The integer operators: shifts, casts, and the two crossings between floats and integers."""

from __future__ import annotations

from tvm import te, tirx

from mrt.backend.compute import Kind, compute, record
from mrt.backend.expressions import Expression, Tensor, bind, constant
from mrt.backend.packing import Operand, Packed, Surroundings, laid_operand, packing
from mrt.backend.stages import elementwise
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.integer import Dequantize, Quantize

LESS_ONE = "less one"
"""The form of shifts of at least 2, of which 1 is taken off: what rounding needs first."""


@packing("right_shift", 1)
def pack_shift(symbol: Symbol, shift: Array, surroundings: Surroundings) -> Packed | None:
    if int(shift.min(initial=31)) < 2:
        return None
    return laid_operand(symbol, 1, (shift - 1).astype(shift.dtype), surroundings.walk.inner, LESS_ONE)


@compute("right_shift", kind=Kind.ELEMENTWISE)
def right_shift(symbol: Symbol, data: Tensor, shift: Tensor | Operand) -> Tensor:
    """x for s = 0, else ((x >> (s-1)) + 1) >> 1; where s may be 1 the sum might overflow, and is (y >> 1) + (y & 1)."""
    dtype = symbol.dtype
    zero, one = constant(0, dtype), constant(1, dtype)
    if isinstance(shift, Operand):
        (less_one,) = shift.views
        return elementwise(
            symbol, data, less_one, body=lambda x, s: ((x.astype(dtype) >> s.astype(dtype)) + one) >> one
        )

    def rounded(x: Expression, s: Expression) -> Expression:
        halves = x >> te.max(s - one, zero)
        return tirx.Select(s == zero, x, bind(halves, lambda y: (y >> one) + (y & one)))

    return elementwise(
        symbol,
        data,
        shift,
        body=lambda x, s: bind(x.astype(dtype), lambda v: bind(s.astype(dtype), lambda by: rounded(v, by))),
    )


@compute("left_shift", kind=Kind.ELEMENTWISE)
def left_shift(symbol: Symbol, data: Tensor, shift: Tensor) -> Tensor:
    return elementwise(symbol, data, shift, body=lambda x, s: x.astype(symbol.dtype) << s.astype(symbol.dtype))


@compute("Cast", kind=Kind.ELEMENTWISE)
def cast(symbol: Symbol, data: Tensor) -> Tensor:
    """Floats are truncated towards zero."""
    if symbol.dtype == "bool":
        return elementwise(symbol, data, body=lambda x: tirx.NE(x, constant(0, data.dtype)))
    return elementwise(symbol, data, body=lambda x: x.astype(symbol.dtype))


EXACT_IN_FLOAT32 = 2**24
"""Up to which float32 holds every integer."""


@compute("quantize", kind=Kind.ELEMENTWISE)
def quantize(symbol: Symbol, data: Tensor, scale: Tensor) -> Tensor:
    """The quotient is float32 and rounds half to even; the clip that follows is exact, in float32 where it can be."""
    operator = record(symbol, Quantize)
    lowest, highest = operator.a_min - operator.zero_point, operator.a_max - operator.zero_point
    largest = max(abs(n) for n in (lowest, highest, operator.a_min, operator.a_max))
    wide = "float32" if largest <= EXACT_IN_FLOAT32 else "float64"
    integer = "int64" if symbol.dtype == "int64" else "int32"

    def element(x: Expression, step: Expression) -> Expression:
        rounded = tirx.nearbyint(x.astype("float32") / step.astype("float32")).astype(wide)
        held = te.max(te.min(rounded, constant(highest, wide)), constant(lowest, wide))
        return (held + constant(operator.zero_point, wide)).astype(integer).astype(symbol.dtype)

    return elementwise(symbol, data, scale, body=element)


@compute("dequantize", kind=Kind.ELEMENTWISE)
def dequantize(symbol: Symbol, data: Tensor, scale: Tensor) -> Tensor:
    """scale * (q - zero_point) in float64, rounded once to float32."""
    zero_point = constant(record(symbol, Dequantize).zero_point, "float64")
    return elementwise(
        symbol,
        data,
        scale,
        body=lambda q, step: (step.astype("float64") * (q.astype("float64") - zero_point)).astype(symbol.dtype),
    )
