"""How a right shift that rounds half up is computed, from what is known of its data."""

from __future__ import annotations

from enum import Enum

import numpy as np

from mrt.symbol import Array, Interval
from mrt.symbol.bounds import DTYPE_RANGES


class Rounding(Enum):
    """Forms that give the integers of `right_shift` for constant shifts s, cheapest first."""

    UNSIGNED = "unsigned x + 2^(s-1), shifted by s"
    """For x >= 0: the sum is less than 2^31 + 2^30, that of int16 less than 2^15 + 2^14."""
    ADDED = "x + 2^(s-1), shifted by s"
    """Where the sum stays within 32 bits."""
    TWO_SHIFTS = "x shifted by s - 1, then + 1, then shifted by 1"
    """For s >= 2 and any x."""


def choose_rounding(x: Interval, shift: Array, dtype: str = "int32") -> Rounding | None:
    """The cheapest form for data in `x` and constant shifts, which broadcast; None where none of them is exact.

    dtype: in which it is computed; shifts are less than its bits.
    """
    if x.min >= 0:
        return Rounding.UNSIGNED
    if fits_by_addition(x, shift, dtype):
        return Rounding.ADDED
    return Rounding.TWO_SHIFTS if int(shift.min(initial=31)) >= 2 else None


def fits_by_addition(x: Interval, shift: Array, dtype: str = "int32") -> bool:
    """Whether x + 2^(s-1) stays within `dtype`."""
    return bool((x.hi + half_of(shift) <= DTYPE_RANGES[dtype][1]).all())


def half_of(shift: Array) -> Array:
    """2^(s-1), and 0 for s = 0, as int64."""
    half: Array = np.left_shift(1, shift.astype(np.int64)) >> 1
    return half
