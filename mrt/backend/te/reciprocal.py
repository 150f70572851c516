"""Float quotients by a constant as products, where they round to the same integers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import floor

import numpy as np

from mrt.symbol import Array

DIGITS = 24
"""Bits of a float32's significand."""
MOST_STEPS = 1024
"""Up to so many integers are checked one by one."""
NEAR = 4
"""The first float whose quotient rounds to n is among so many on either side of (n - 1/2) · scale."""
LARGEST = 2.0**100
"""Scales and their reciprocals are at most this, so that all terms are normal floats."""


def reciprocal_of(scale: Array, lowest: int, highest: int) -> tuple[Array, Array] | None:
    """Two float32 h and l so that x · h + x · l, the second product and the sum rounded, may replace x / scale.

    For every float32 x both, rounded half to even and clipped to [lowest, highest], are the same integer. Neither
    decreases with x, so that only the first x of each integer is checked. None where there are no such h and l, or too
    many integers to check.
    """
    if scale.size != 1 or highest - lowest > MOST_STEPS or not 1 / LARGEST <= scale.item() <= LARGEST:
        return None
    exact = 1 / Fraction(scale.item())
    high = _rounded(exact, floor)
    low = _rounded(exact - high, round)
    # An infinite x gives an infinite sum, since both have one sign.
    if not low:
        return None
    step = np.arange(lowest + 1, highest + 1)
    around = _neighbours(((step - 0.5) * scale.item()).astype(np.float32))
    first = (np.rint(around / scale.astype(np.float32)) >= step).argmax(axis=0)
    for n, place, given in zip(step.tolist(), first.tolist(), around.T.tolist(), strict=True):
        found = [_quotient(Fraction(x), high, low) >= n for x in given[max(place - 1, 0) : place + 1]]
        if found != [False, True]:
            return None
    return np.full(scale.shape, float(high), np.float32), np.full(scale.shape, float(low), np.float32)


def _neighbours(x: Array) -> Array:
    """The floats around each x, in order along a first axis."""
    found = [x]
    for _ in range(NEAR):
        found = [np.nextafter(found[0], np.float32(-np.inf)), *found, np.nextafter(found[-1], np.float32(np.inf))]
    return np.stack(found)


def _quotient(x: Fraction, high: Fraction, low: Fraction) -> int:
    """x · high + x · low as a machine computes it, rounded to an integer."""
    return round(_rounded(x * high + _rounded(x * low, round), round))


def _rounded(value: Fraction, how: Callable[[Fraction], int]) -> Fraction:
    """`value`, which lies in the range of float32, at its precision. how: `round` is half to even."""
    if not value:
        return value
    # A quotient has as many bits as numerator less denominator, or one more.
    unit = Fraction(2) ** (value.numerator.bit_length() - value.denominator.bit_length() - DIGITS)
    unit = unit if abs(value) < unit * 2**DIGITS else 2 * unit
    return how(value / unit) * unit
