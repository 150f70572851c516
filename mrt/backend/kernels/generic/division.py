"""Divisions of many integers by one: a multiplication by its reciprocal, exact, in words of 32 bits.

The reciprocal is one division of 64 by 32 bits, where bit by bit it is a chain of 31 steps. Nothing wraps: TVM has LLVM
take it that sums, differences and products of uint32 do not.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import tirx

from mrt.backend.kernels.generic.high_word import high_word
from mrt.backend.te.stages import stage
from mrt.backend.tir.expressions import Expression, bind, constant
from mrt.symbol import Array

BITS = 31
"""Of a number that is divided."""


def reciprocals(divisors: Array) -> tuple[Array, Array]:
    """m and l for divisors that are known; m is below 2^32 and given as the int32 of the same bits."""
    exponents = np.array([(int(d) - 1).bit_length() for d in divisors.ravel()], np.int64)
    found = [(1 << (BITS + int(by))) // int(d) + 1 for d, by in zip(divisors.ravel(), exponents, strict=True)]
    words = np.array(found, np.uint32).view(np.int32)
    return words.reshape(divisors.shape), exponents.astype(np.int32).reshape(divisors.shape)


def floor_division(divisor: Callable[..., Expression], shape: tuple[int, ...]) -> Callable[..., Expression]:
    """A function of (x, index...) that gives floor(x / d) of an int32 x, d >= 1 being the divisor at that index.

    With 2^l the least power of 2 that is d or more, and m = floor(2^(31 + l) / d) + 1, which is below 2^32,
    floor(x / d) is floor(x m / 2^(31 + l)) for 0 <= x < 2^31; a negative x is floor(x / d) = -1 - floor((-1 - x) / d).
    Source: T. Granlund and P. Montgomery, Division by Invariant Integers using Multiplication, PLDI 1994, theorem 4.2.
    """

    def exponent(d: Expression) -> Expression:
        """l: the bits of d - 1, and one less than those of 2 d - 1, which is never 0."""
        twice = d.astype("uint32") * _word(2) - _word(1)
        return constant(BITS, "int32") - tirx.clz(tirx.reinterpret("int32", twice))

    def divided(*at: Expression) -> Expression:
        d = divisor(*at)
        power = constant(1 << BITS, "uint64") << exponent(d).astype("uint64")
        return tirx.truncdiv(power, d.astype("uint64")).astype("uint32")

    quotient = stage(shape, divided, "reciprocal")
    shift = stage(shape, lambda *at: exponent(divisor(*at)).astype("uint32"), "shift")

    return lambda x, *at: divided_by(x, quotient(*at) + _word(1), shift(*at))


def divided_by(x: Expression, reciprocal: Expression, shift: Expression) -> Expression:
    """floor(x / d) of an int32 x, by m and l of d in uint32."""

    def signed(sign: Expression) -> Expression:
        magnitude = (x ^ sign).astype("uint32")
        return (high_word(magnitude * _word(2), reciprocal) >> shift).astype("int32") ^ sign

    return bind(x >> constant(BITS, "int32"), signed)


def _word(value: int) -> Expression:
    return constant(value, "uint32")
