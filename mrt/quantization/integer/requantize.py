"""Choosing multipliers and shifts for integer rescaling, from proven bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.errors import QuantizationError
from mrt.symbol import Array

PRODUCT_LIMIT = 2**31 - 2
"""|x * frac| stays at or below this, so that adding the rounding half never overflows."""
FRAC_BITS = 15
LEAST_FRAC_BITS = 8
MAX_SHIFT = 31
FEW_BITS = 13
"""Results of at most so many bits do not show what LEAST_FRAC_BITS round away: they are 8 bits with guard bits."""
SHOWS = 16
"""An error of more steps of the result shows: one step, where the result has four guard bits."""


@dataclass(frozen=True, eq=False)
class Multiplier:
    """x * ratio as ((x >> pre_shift) * frac) >> shift, both shifts rounding half up.

    frac and shift are int64 arrays that broadcast like the ratio; pre_shift is one number.
    """

    pre_shift: int
    frac: Array
    shift: Array

    @property
    def ratio(self) -> Array:
        """What the multiplier really multiplies by."""
        result: Array = self.frac * 2.0 ** -(self.shift.astype(np.float64) + self.pre_shift)
        return result


def pre_shift_for(magnitude: int) -> int:
    """The shift after which at least 8 bits are free beside a tensor of this magnitude."""
    free = 31 - int(magnitude).bit_length()
    return max(0, LEAST_FRAC_BITS - free)


def shifted_magnitude(magnitude: int, shift: int) -> int:
    """The largest value left of `magnitude` by a right shift that rounds half up."""
    return int(magnitude) if shift == 0 else ((int(magnitude) >> (shift - 1)) + 1) >> 1


def frac_limit(magnitudes: Array, pre_shift: int) -> Array:
    """The largest frac beside values of these magnitudes (any shape) after the pre-shift."""
    result: Array = np.minimum(_room(magnitudes, pre_shift), 2**FRAC_BITS - 1)
    return result


def _room(magnitudes: Array, pre_shift: int) -> Array:
    """The largest factor beside values of these magnitudes after the pre-shift; int64."""
    shifted = magnitudes if pre_shift == 0 else ((magnitudes >> (pre_shift - 1)) + 1) >> 1
    return np.asarray(PRODUCT_LIMIT // np.maximum(shifted, 1)).astype(np.int64)


def fit_multiplier(ratio: Array, magnitudes: Array, saturates_at: int | None, at_most: bool = False) -> Multiplier:
    """The multiplier nearest to `ratio` (positive, any shape) for values of the given magnitudes (same shape).

    Takes frac as wide as the product allows, at most 15 bits, and shift at most 31. A ratio above every such frac is
    met by the largest frac that fits, provided that any non-zero value then saturates at `saturates_at`. With `at_most`
    the multiplier is not above the ratio, so that a scale that follows it never shrinks below the asked one.
    Where results have more than FEW_BITS bits and the rounding of frac shows in them, a larger pre-shift gives it as
    many bits as make the error of both least. Raises QuantizationError where that is impossible.
    """
    least = pre_shift_for(int(magnitudes.max()))
    found = _with_pre_shift(least, ratio, magnitudes, saturates_at, at_most)
    if at_most or saturates_at is None or saturates_at < 1 << FEW_BITS:
        return found
    largest = np.minimum(magnitudes, (saturates_at + 1) / ratio)

    def error(multiplier: Multiplier) -> float:
        shifted = 2.0 ** (multiplier.pre_shift - 1) if multiplier.pre_shift else 0.0
        return float((np.abs(multiplier.ratio - ratio) * largest + shifted * ratio).max())

    finer = range(least + 1, least + 1 + FRAC_BITS - LEAST_FRAC_BITS) if error(found) > SHOWS else ()
    fitting = [by for by in finer if (np.rint(ratio * 2.0**by) <= frac_limit(magnitudes, by)).all()]
    return min([found, *(_with_pre_shift(by, ratio, magnitudes, saturates_at, at_most) for by in fitting)], key=error)


def _with_pre_shift(
    pre_shift: int, ratio: Array, magnitudes: Array, saturates_at: int | None, at_most: bool
) -> Multiplier:
    """`fit_multiplier` with this pre-shift."""
    limit = frac_limit(magnitudes, pre_shift)
    wanted = ratio * 2.0**pre_shift
    shift = best_shift(wanted, limit)
    exact = np.ldexp(wanted, shift)
    frac = np.floor(exact * (1 + 1e-12)) if at_most else np.rint(exact)
    over = frac > limit
    if over.any():
        cap = _room(magnitudes, pre_shift)
        saturated = pre_shift == 0 and saturates_at is not None and bool((cap[over] > saturates_at).all())
        if not saturated and (frac[over] > cap[over]).any():
            raise QuantizationError(f"the rescaling factor {ratio.max():.4g} does not fit 32 bits")
        frac = np.where(over, np.minimum(frac, cap), frac)
    return reduce_multiplier(Multiplier(pre_shift, frac.astype(np.int64), shift))


def best_shift(ratio: Array, limit: Array) -> Array:
    """The largest shift in [0, 31] at which ratio * 2^shift rounds to at most `limit`; int64."""
    with np.errstate(divide="ignore"):
        shift = np.floor(np.log2(limit / ratio))
    shift = np.clip(np.nan_to_num(shift, nan=0.0, posinf=MAX_SHIFT, neginf=0), 0, MAX_SHIFT).astype(np.int64)
    # The logarithm may be one off in either direction.
    shift = np.where((shift < MAX_SHIFT) & (np.rint(np.ldexp(ratio, shift + 1)) <= limit), shift + 1, shift)
    result: Array = np.where((shift > 0) & (np.rint(np.ldexp(ratio, shift)) > limit), shift - 1, shift)
    return result


def absorbable_ratio(ratio: Array, limit: Array) -> Array:
    """The smallest value at or above `ratio` that is frac * 2^-shift with frac <= limit and shift <= 31."""
    shift = best_shift(ratio, limit)
    frac = np.ceil(np.ldexp(ratio, shift) * (1 - 1e-12))
    over = frac > limit
    shift = np.where(over & (shift > 0), shift - 1, shift)
    frac = np.maximum(np.ceil(np.ldexp(ratio, shift) * (1 - 1e-12)), 1)
    result: Array = np.ldexp(frac, -shift)
    return result


def reduce_multiplier(multiplier: Multiplier) -> Multiplier:
    """The same multiplier with factors of two taken out of frac: a power of two becomes a pure shift."""
    frac, shift = multiplier.frac, multiplier.shift
    if not frac.all():
        return multiplier
    twos = np.minimum(np.log2((frac & -frac).astype(np.float64)).astype(np.int64), shift)
    if not ((frac >> twos) == 1).all():
        return multiplier
    return Multiplier(multiplier.pre_shift, frac >> twos, shift - twos)
