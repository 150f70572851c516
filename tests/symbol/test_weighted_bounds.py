"""Bounds of sums of known weights: exact for integers of any width, at their ends too; signs of floats stay."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.symbol import Interval
from mrt.symbol.operators._intervals import weighted

WIDTHS = ["int8", "uint8", "int16", "int32", "int64"]


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("dtype", WIDTHS)
def test_every_width_is_summed_exactly(dtype: str, ends: bool) -> None:
    """Of two groups of three channels with bounds of their own, and of channels with one bound."""
    random, limits = np.random.default_rng(0), np.iinfo(dtype)
    weight = random.integers(limits.min, limits.max, (8, 3, 2, 2), dtype, endpoint=True)
    if ends:
        weight[:] = limits.min or limits.max
    lo = random.integers(-(2**20), 2**20, (6,))
    hi = lo + random.integers(0, 2**20, (6,))
    for low, high in ((lo, hi), (np.full(6, -128), np.full(6, 127))):
        one = slice(None) if low is lo else slice(1)
        found = weighted(Interval.of(low[one], high[one], (6,)), Interval.constant(weight), groups=2)
        rows = weight.astype(object).reshape(2, 4, 3, 4)
        corners = [rows * end.astype(object).reshape(2, 1, 3, 1) for end in (low, high)]
        np.testing.assert_array_equal(found.lo, np.minimum(*corners).sum((2, 3)).ravel())
        np.testing.assert_array_equal(found.hi, np.maximum(*corners).sum((2, 3)).ravel())


def test_a_float_sum_of_products_that_are_never_negative_is_never_negative() -> None:
    """As ends and a width, rounded apart, it could be."""
    random = np.random.default_rng(0)
    weight = random.uniform(0, 1, (64, 100)).astype(np.float32)
    data = Interval.of(np.zeros(100), random.uniform(0, 1, 100), (100,))
    found = weighted(data, Interval.constant(weight))
    assert (found.lo == 0).all()
    assert (found.hi > 0).all()
