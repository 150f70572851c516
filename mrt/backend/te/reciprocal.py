"""Quotients by a constant without a division, where they round to the same integers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import floor

import numpy as np

from mrt.symbol import Array

DIGITS = 24
"""Bits of a float32's significand."""
MOST_STEPS = 1024
"""From integer to integer that are looked at one by one."""
NEAR = 4
"""Floats on either side of (n - 1/2) · scale among which the first is whose quotient rounds to n."""
LARGEST = 2.0**100
"""A scale, or the reciprocal of one, up to which all terms are normal floats."""


def reciprocal_of(scale: Array, lowest: int, highest: int) -> tuple[Array, Array] | None:
    """Two float32 h and l such that x · h + x · l serves as x / scale, the second product and the sum being rounded.

    For every float32 x both round, half to even, to the same integer within [lowest, highest], or lie on the same side
    of it. Neither falls where x rises, so that it is enough to look where the step to each integer begins. None where
    there are no such numbers, or more steps than are looked at.
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
    """The floats next to each x, from the least on, along a first axis."""
    found = [x]
    for _ in range(NEAR):
        found = [np.nextafter(found[0], np.float32(-np.inf)), *found, np.nextafter(found[-1], np.float32(np.inf))]
    return np.stack(found)


def _quotient(x: Fraction, high: Fraction, low: Fraction) -> int:
    """What a machine makes of x · high + x · low, as an integer."""
    return round(_rounded(x * high + _rounded(x * low, round), round))


def _rounded(value: Fraction, how: Callable[[Fraction], int]) -> Fraction:
    """`value` with as many bits as a float32 has, whose range it is in; `round` rounds half to even."""
    if not value:
        return value
    # Of the quotient of two integers either as many bits as the difference of theirs says, or one less.
    unit = Fraction(2) ** (value.numerator.bit_length() - value.denominator.bit_length() - DIGITS)
    unit = unit if abs(value) < unit * 2**DIGITS else 2 * unit
    return how(value / unit) * unit
