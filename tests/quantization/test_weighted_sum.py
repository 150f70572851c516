"""Weighted sums of integers: every step fits 32 bits, and the result is as near to the real sum as is stated."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrt.errors import QuantizationError
from mrt.quantization.integer.weighted_sum import EXACT_BITS, WeightedSum, fit_weighted_sum

factors = st.floats(2.0**-20, 2.0**6)
signed = st.tuples(factors, st.sampled_from([1, -1])).map(lambda pair: pair[0] * pair[1])
terms_of_sums = st.tuples(signed, st.integers(1, 2**20)) | st.tuples(st.floats(1e-30, 1e30), st.just(0))
"""A factor and the magnitude of its integers; what is always 0 may have any factor."""


def shifted(value: int, by: int) -> int:
    return value if by == 0 else ((value >> (by - 1)) + 1) >> 1


def computed(found: WeightedSum, values: list[int]) -> int:
    """t_0 with Python integers; every step is checked to fit 32 bits."""
    carried = None
    values = [shifted(value, int(by.item())) for value, by in zip(values, found.pre_shifts, strict=True)]
    for level in reversed(range(len(found.digits))):
        total = 0 if carried is None else shifted(carried, found.digit_bits)
        parts = [value * int(digit.item()) for value, digit in zip(values, found.digits[level], strict=True)]
        for part in [*parts, int(found.constants[level].item())]:
            total += part
            assert -(2**31) <= part < 2**31 and -(2**31) <= total < 2**31
        carried = total
    return total


@given(st.lists(terms_of_sums, min_size=1, max_size=4), st.floats(-300, 300), st.randoms())
def test_the_sum_fits_and_is_as_near_as_stated(terms: list[tuple[float, int]], constant: float, random: object) -> None:
    found = fit_weighted_sum(
        [np.array([factor]) for factor, _ in terms], [np.array([m]) for _, m in terms], np.array([constant])
    )
    shift = int(found.shift[0])
    lost = sum(Fraction(1, 2) for by in found.pre_shifts if by.any())
    allowed = max(Fraction(1, 2), Fraction(2) ** (shift - EXACT_BITS)) + Fraction(9, 16) + lost
    for pick in (1, -1, None):
        values = [random.randint(-m, m) if pick is None else pick * m for _, m in terms]  # type: ignore[attr-defined]
        real = Fraction(constant) + sum(Fraction(f) * value for (f, _), value in zip(terms, values, strict=True))
        assert abs(computed(found, values) - real * 2**shift) <= allowed


@pytest.mark.parametrize("magnitude", [255, 2**20, 2**31 - 1])
@pytest.mark.parametrize("power", [0, 3, 31])
def test_a_power_of_two_is_a_shift_alone(magnitude: int, power: int) -> None:
    found = fit_weighted_sum([np.array([2.0**-power])], [np.array([magnitude])], np.zeros(1))
    assert (int(found.shift[0]), len(found.digits), int(found.digits[0][0][0])) == (power, 1, 1)


def test_factors_of_few_bits_leave_a_short_shift() -> None:
    """3/8 x - 5/4 y + 7/2 is (3 x - 10 y + 28) >> 3."""
    found = fit_weighted_sum([np.array([0.375]), np.array([-1.25])], [np.array([255])] * 2, np.array([3.5]))
    assert len(found.digits) == 1 and int(found.shift[0]) == 3
    assert [int(digit[0]) for digit in found.digits[0]] == [3, -10] and int(found.constants[0][0]) == 28


def test_one_shift_serves_all_channels_where_that_is_asked() -> None:
    ratios, reach = np.array([[1e-4, 0.3]]), np.array([[1000, 1000]])
    assert fit_weighted_sum([ratios], [reach], np.zeros((1, 1))).shift.size == 2
    found = fit_weighted_sum([ratios], [reach], np.zeros((1, 1)), one_shift=True)
    assert found.shift.shape == (1, 1)


def test_a_sum_beyond_32_bits_is_refused() -> None:
    with pytest.raises(QuantizationError, match="does not fit 32 bits"):
        fit_weighted_sum([np.array([3000.0])], [np.array([2**20])], np.zeros(1))


def test_a_channel_that_is_always_zero_leaves_the_shift_of_others() -> None:
    found = fit_weighted_sum([np.array([1e12, 0.125])], [np.array([0, 255])], np.zeros(2))
    assert found.shift.tolist() == [3, 3] and len(found.digits) == 1
    found = fit_weighted_sum([np.array([1e12, 0.3])], [np.array([0, 255])], np.array([0.0, 1.7]))
    assert [int(digits[0][0]) for digits in found.digits] == [0] * len(found.digits)
