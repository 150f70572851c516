"""Multipliers and shifts: within 32 bits for every value the bound allows, and as near to the ratio as they can be."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrt.errors import QuantizationError
from mrt.quantization.integer.requantize import (
    PRODUCT_LIMIT,
    absorbable_ratio,
    best_shift,
    fit_multiplier,
    frac_limit,
    pre_shift_for,
    shifted_magnitude,
)

ratios = st.floats(2.0**-24, 2.0**10, allow_nan=False)
magnitudes = st.integers(1, 2**31 - 1)


def rounded_shift(x: int, s: int) -> int:
    """x / 2^s, halves up, in exact arithmetic."""
    return int((Fraction(x, 2**s) + Fraction(1, 2)).__floor__())


@given(ratios, magnitudes)
def test_the_product_fits_and_the_ratio_is_met(ratio: float, magnitude: int) -> None:
    if ratio * magnitude > 2**28:
        return
    m = fit_multiplier(np.array([ratio]), np.array([magnitude]), None)
    frac, shift = int(m.frac[0]), int(m.shift[0])
    assert 0 <= shift <= 31
    largest = rounded_shift(magnitude, m.pre_shift)
    assert abs(largest * frac) <= PRODUCT_LIMIT
    # frac has at least 7 significant bits unless the shift is at its end.
    assert abs(float(m.ratio[0]) - ratio) <= max(ratio * 2.0**-7, 2.0 ** -(32 + m.pre_shift))


@given(st.floats(2.0**-15, 1.0), st.integers(1, 2**16))
def test_fifteen_bits_where_they_fit(ratio: float, magnitude: int) -> None:
    m = fit_multiplier(np.array([ratio]), np.array([magnitude]), None)
    assert abs(float(m.ratio[0]) - ratio) <= ratio * 2.0**-14


@given(st.floats(2.0**-16, 2.0**-9), st.integers(-(2**31) + 1, 2**31 - 1))
def test_results_of_many_bits_are_off_by_few_steps(ratio: float, x: int) -> None:
    """Beside 31 bits a multiplier of 8 would be off by up to 2^-9 of a result that has 15 to 22."""
    magnitude = 2**31 - 1
    m = fit_multiplier(np.array([ratio]), np.array([magnitude]), int(magnitude * ratio))
    frac, shift = int(m.frac[0]), int(m.shift[0])
    assert rounded_shift(magnitude, m.pre_shift) * frac <= PRODUCT_LIMIT
    off = rounded_shift(rounded_shift(x, m.pre_shift) * frac, shift) - Fraction(ratio) * x
    # 15 bits of frac round away 2^-15 of the result, and what is shifted out for them 2^-17.
    assert abs(off) <= max(16, 1.25 * magnitude * ratio * 2.0**-15) + 1


def test_a_power_of_two_is_a_pure_shift() -> None:
    m = fit_multiplier(np.array([1 / 16]), np.array([4000]), None)
    assert (int(m.frac[0]), int(m.shift[0]), m.pre_shift) == (1, 4, 0)


def test_a_ratio_beyond_every_multiplier_saturates_or_is_refused() -> None:
    m = fit_multiplier(np.array([2.0**40]), np.array([1]), 255)
    assert int(m.frac[0]) * 1 >= 255
    with pytest.raises(QuantizationError, match="does not fit 32 bits"):
        fit_multiplier(np.array([2.0**40]), np.array([2**30]), None)


@given(ratios, st.integers(2**7, 2**15 - 1))
def test_an_absorbed_ratio_is_exact_and_just_above(ratio: float, limit: int) -> None:
    limits = np.array([limit])
    if ratio > limit / 2:
        return
    exact = absorbable_ratio(np.array([ratio]), limits)
    shift = best_shift(exact, limits)
    frac = exact * 2.0**shift
    assert frac == np.rint(frac)
    assert frac <= limit
    assert ratio * (1 - 1e-9) <= exact[0] <= ratio * (1 + 2.0 / limit) + 2.0**-31


def test_the_pre_shift_leaves_eight_bits() -> None:
    for bits in range(1, 32):
        magnitude = 2**bits - 1
        shift = pre_shift_for(magnitude)
        assert shifted_magnitude(magnitude, shift) <= 2**23
        assert shift == max(0, bits - 23)
        assert frac_limit(np.array([magnitude]), shift)[0] >= 2**8 - 1


@pytest.mark.parametrize("magnitude", [1, 2, 3, 5, 127, 128, 2**31 - 1])
@pytest.mark.parametrize("shift", [0, 1, 2, 8, 31])
def test_shifted_magnitude_is_the_rounded_shift(magnitude: int, shift: int) -> None:
    assert shifted_magnitude(magnitude, shift) == rounded_shift(magnitude, shift)
