"""The integer operators: shifts, casts, and the two crossings between floats and integers."""

from __future__ import annotations

from tvm import te, tirx

from mrt.backend.compute import Expression, Kind, Tensor, bind, compute, constant, elementwise, record
from mrt.symbol import Symbol
from mrt.symbol.operators.integer import Dequantize, Quantize


@compute("right_shift", kind=Kind.ELEMENTWISE)
def right_shift(symbol: Symbol, data: Tensor, shift: Tensor) -> Tensor:
    """x for s = 0, else ((x >> (s-1)) + 1) >> 1, written so that the sum cannot overflow: (y >> 1) + (y & 1)."""
    dtype = symbol.dtype
    zero, one = constant(0, dtype), constant(1, dtype)

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
        return elementwise(symbol, data, body=lambda x: x != constant(0, data.dtype))
    return elementwise(symbol, data, body=lambda x: x.astype(symbol.dtype))


@compute("quantize", kind=Kind.ELEMENTWISE)
def quantize(symbol: Symbol, data: Tensor, scale: Tensor) -> Tensor:
    """The quotient is float32 and rounds half to even; what follows is exact in float64, so that clipping is too."""
    operator = record(symbol, Quantize)

    def element(x: Expression, step: Expression) -> Expression:
        rounded = tirx.nearbyint(x.astype("float32") / step.astype("float32")).astype("float64")
        moved = rounded + constant(operator.zero_point, "float64")
        held = te.max(te.min(moved, constant(operator.a_max, "float64")), constant(operator.a_min, "float64"))
        return held.astype("int64" if symbol.dtype == "int64" else "int32").astype(symbol.dtype)

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
