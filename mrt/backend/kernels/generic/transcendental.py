"""Functions of float32 that vectors compute; those of other floats are TVM's, which calls the C library.

Coefficients are those whose largest relative error is least (Lawson, "Contributions to the theory of linear least
maximum approximation", 1961), rounded to float32. NaN gives NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

from tvm import te, tirx

from mrt.backend.tir.expressions import Expression, bind, constant, dtype_of

LEAST_EXPONENT, MOST_EXPONENT = -104.0, 89.0
"""Beyond these exp is 0 or infinite in float32."""
LN2_HIGH, LN2_LOW = 0.693145751953125, 1.428606765330187e-06
"""ln 2 in two parts, of which whole numbers up to 2^8 times the first are exact (Cody and Waite, 1980)."""
EXP = (0.499999934, 0.166665201, 0.0416683942, 0.00836878032, 0.00138144708)
"""(e^r - 1 - r) / r^2 by powers of r, for |r| <= ln 2 / 2; the error of e^r is 3e-9."""
MANTISSA_BITS, EXPONENT_BIAS = 23, 127
"""Of a float32."""
ROUNDING, ROUNDING_BITS = 12582912.0, 0x4B400000
"""1.5 * 2^23 and its bits: a number below 2^22 that is added to it is rounded to a whole one, halves to even, by which
the bits grow."""
LEAST_NORMAL, INFINITE = -87.0, 89.0
"""Limits of x between which e^x is 2^n e^r with one factor 2^n, which is infinite for the last n."""

ERF_LIMIT = 3.92
"""From here on erf is 1 in float32."""
ERF = (
    (1.12837915, 0.190402367, 0.0527480538, 0.00376540368, 0.000284871499, 2.05003535e-6),
    (1.0, 0.502072448, 0.1141073, 0.0149687985, 0.00116247161, 3.80905893e-5),
)
"""erf(x) / x as a quotient by powers of x^2; the error is 2e-8."""
TANH_LIMIT = 9.02
"""From here on tanh is 1 in float32."""
TANH = (
    (0.999999979, 0.133797246, 0.00349404144, 2.05835541e-5, 1.33191037e-8),
    (1.0, 0.467130399, 0.0258711022, 0.00032831023, 7.76204674e-7),
)
"""tanh(x) / x as such a quotient; the error is 2e-8."""


def exp(x: Expression) -> Expression:
    """e^x, within two units in the last place: x = n ln 2 + r, e^x = 2^n e^r."""
    if dtype_of(x) != "float32":
        return te.exp(x)
    return bind(_limited(x, LEAST_EXPONENT, MOST_EXPONENT), lambda x: _by_parts(x, _scaled_by_halves))


def _by_parts(x: Expression, scaled: Callable[[Expression, Expression], Expression]) -> Expression:
    """What `scaled` makes of e^r and n, an int32."""

    def of_sum(shifted: Expression) -> Expression:
        n = shifted - _number(ROUNDING)
        # Of a NaN n is any number: e^r is a NaN, and what it is multiplied by does not matter.
        whole = tirx.reinterpret("int32", shifted) - constant(ROUNDING_BITS, "int32")

        def of_rest(r: Expression) -> Expression:
            return (r * r * _polynomial(r, EXP) + r) + _number(1)

        return bind(x - n * _number(LN2_HIGH) - n * _number(LN2_LOW), lambda r: scaled(of_rest(r), whole))

    return bind(x * _number(1 / math.log(2)) + _number(ROUNDING), of_sum)


def _scaled_by_halves(value: Expression, n: Expression) -> Expression:
    """value times 2^n, in two steps: 2^n itself may be beyond float32 where the result is not."""

    def by_halves(whole: Expression) -> Expression:
        half = whole >> constant(1, "int32")
        return value * _power_of_two(half) * _power_of_two(whole - half)

    return bind(n, by_halves)


def _power_of_two(n: Expression) -> Expression:
    return tirx.reinterpret("float32", (n + constant(EXPONENT_BIAS, "int32")) << constant(MANTISSA_BITS, "int32"))


def sigmoid(x: Expression) -> Expression:
    """1 / (1 + e^-x), within four units in the last place; 0 where that is below the least normal number."""
    if dtype_of(x) != "float32":
        return te.sigmoid(x)

    def raised(x: Expression) -> Expression:
        return _by_parts(x, lambda value, n: value * _power_of_two(n))

    return _number(1) / (_number(1) + bind(_limited(-x, LEAST_NORMAL, INFINITE), raised))


def erf(x: Expression) -> Expression:
    """The error function, within 4e-7."""
    return te.erf(x) if dtype_of(x) != "float32" else _odd(x, ERF_LIMIT, *ERF)


def tanh(x: Expression) -> Expression:
    """The hyperbolic tangent, within 4e-7."""
    return te.tanh(x) if dtype_of(x) != "float32" else _odd(x, TANH_LIMIT, *TANH)


def _odd(x: Expression, limit: float, above: Sequence[float], below: Sequence[float]) -> Expression:
    """x times a quotient of polynomials of x^2; beyond the limit what it is there."""

    def within(x: Expression) -> Expression:
        return bind(x * x, lambda square: x * _polynomial(square, above) / _polynomial(square, below))

    return bind(_limited(x, -limit, limit), within)


def _limited(x: Expression, lo: float, hi: float) -> Expression:
    """x limited to [lo, hi]; a NaN stays one, since what is compared with it is given up for it."""
    return te.min(_number(hi), te.max(_number(lo), x))


def _polynomial(x: Expression, coefficients: Sequence[float]) -> Expression:
    """By Horner's rule; coefficients: by rising powers."""
    last, *before = (_number(value) for value in reversed(coefficients))
    return reduce(lambda value, coefficient: value * x + coefficient, before, last)


def _number(value: float) -> Expression:
    return constant(value, "float32")
