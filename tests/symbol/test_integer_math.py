"""Integer square roots and divisions against Python integers, and the proofs that go with them."""

from __future__ import annotations

import itertools
from math import isqrt

import numpy as np
import pytest
from applied import draw, holds, infer, random_interval, run

from mrt.errors import GraphError, QuantizationError
from mrt.symbol import Interval, TensorType
from mrt.symbol.operators.integer_math import MAX_FRACTION_BITS, FloorDivide, FloorMod, IntegerSqrt

HIGHEST = 2**31 - 1
SQUARES = [n * n + d for n in (1, 2, 3, 255, 256, 4095, 4096, 46339, 46340) for d in (-1, 0, 1)]
ROOTS_OF = [0, 1, 2, 3, *SQUARES, 2**30 - 1, 2**30, HIGHEST - 1, HIGHEST]


@pytest.mark.parametrize("fraction_bits", range(MAX_FRACTION_BITS + 1))
def test_roots_are_exact(fraction_bits: int) -> None:
    rng = np.random.default_rng(fraction_bits)
    values = np.array([*ROOTS_OF, *rng.integers(0, HIGHEST, 500), *rng.integers(0, 5000, 100)], np.int32)
    operator = IntegerSqrt(fraction_bits=fraction_bits)
    expected = [isqrt(int(x) << 2 * fraction_bits) for x in values]
    assert run(operator, values).tolist() == expected
    (remainder,) = operator.intermediates(Interval.of(0, HIGHEST, (1,)))
    assert remainder.fits_int32


@pytest.mark.parametrize("fraction_bits", [0, 5, MAX_FRACTION_BITS])
def test_a_kernel_s_steps_stay_within_the_intermediates(fraction_bits: int) -> None:
    operator = IntegerSqrt(fraction_bits=fraction_bits)
    for value in ROOTS_OF:
        (proven,) = operator.intermediates(Interval.of(0, value, (1,)))
        root = remainder = 0
        for index in range(16 + fraction_bits):
            place = 2 * (15 - index)
            remainder = 4 * remainder + ((value >> place) & 3 if place >= 0 else 0)
            assert remainder <= proven.max and 4 * root + 1 <= proven.max
            fits = remainder >= 4 * root + 1
            remainder, root = remainder - (4 * root + 1) * fits, 2 * root + fits
        assert root == isqrt(value << 2 * fraction_bits)


def test_roots_of_negative_numbers_are_refused() -> None:
    with pytest.raises(GraphError, match=r"data is in \[-1, 4\]"):
        IntegerSqrt().evaluate(np.array([4, -1], np.int32))
    with pytest.raises(QuantizationError, match=r"\[-1, 4\]; 0 to 2147483647 is needed"):
        IntegerSqrt().bounds(Interval.of(-1, 4, (1,)))
    with pytest.raises(GraphError, match="fraction_bits is 13"):
        infer(IntegerSqrt(fraction_bits=13), TensorType((1,), "int32"))
    with pytest.raises(GraphError, match="no float form"):
        infer(IntegerSqrt(), TensorType((1,)))


def test_bounds_of_roots_are_attained() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        interval = random_interval(rng, (2, 3), 0, HIGHEST)
        operator = IntegerSqrt(fraction_bits=int(rng.integers(5)))
        bounds = operator.bounds(interval)
        assert holds(bounds, operator.evaluate(draw(rng, interval)))
        np.testing.assert_array_equal(bounds.hi, operator.evaluate(interval.hi))


def test_division_rounds_down() -> None:
    lhs = np.array([-(2**31), -7, -6, -1, 0, 1, 6, 7, HIGHEST], np.int32)[:, None]
    rhs = np.array([1, 2, 3, 7, HIGHEST], np.int32)
    expected = [[int(x) // int(y) for y in rhs] for x in lhs[:, 0]]
    assert run(FloorDivide(), lhs, rhs).tolist() == expected

    remainders = [[int(x) % int(y) for y in rhs] for x in lhs[:, 0]]
    assert run(FloorMod(), lhs, rhs).tolist() == remainders


@pytest.mark.parametrize("operator", [FloorDivide(), FloorMod()])
@pytest.mark.parametrize("least", [0, -3])
def test_a_divisor_that_may_be_zero_is_refused(least: int, operator: FloorDivide | FloorMod) -> None:
    with pytest.raises(QuantizationError, match="its divisor is in .*; 1 or more is needed"):
        operator.bounds(Interval.of(0, 9, (1,)), Interval.of(least, 5, (1,)))
    with pytest.raises(GraphError, match="the divisor holds"):
        operator.evaluate(np.array([1]), np.array([least]))


def test_bounds_of_quotients_are_exact() -> None:
    for lo in range(-9, 10):
        for hi in range(lo, 10):
            for least in range(1, 6):
                for most in range(least, 6):
                    bounds = FloorDivide().bounds(Interval.of(lo, hi, (1,)), Interval.of(least, most, (1,)))
                    quotients = [x // y for x in range(lo, hi + 1) for y in range(least, most + 1)]
                    assert (bounds.min, bounds.max) == (min(quotients), max(quotients))


def test_bounds_of_remainders_are_exact_by_one_divisor_and_hold_by_several() -> None:
    numbers = itertools.combinations_with_replacement(range(-9, 10), 2)
    divisors = itertools.combinations_with_replacement(range(1, 7), 2)
    for (lo, hi), (least, most) in itertools.product(numbers, divisors):
        bounds = FloorMod().bounds(Interval.of(lo, hi, (1,)), Interval.of(least, most, (1,)))
        rests = [x % y for x in range(lo, hi + 1) for y in range(least, most + 1)]
        assert bounds.min <= min(rests) and max(rests) <= bounds.max <= most - 1
        if least == most or (lo >= 0 and hi < least):
            assert (bounds.min, bounds.max) == (min(rests), max(rests))


def test_bounds_of_quotients_broadcast() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        lhs = random_interval(rng, (2, 3, 4), -1000, 1000)
        rhs = random_interval(rng, (3, 1), 1, 20)
        for operator in (FloorDivide(), FloorMod()):
            assert holds(operator.bounds(lhs, rhs), operator.evaluate(draw(rng, lhs), draw(rng, rhs)))
