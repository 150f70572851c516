"""Integers times real factors, added up and rounded once: the coefficients that do it in 32 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from mrt.errors import QuantizationError
from mrt.quantization.integer.requantize import MAX_SHIFT
from mrt.symbol import Array
from mrt.symbol.types import INT32_MAX

EXACT_BITS = 21
"""Coefficients are so fine that they bring a sum off by at most 2^-21, where that is more than half of its last bit."""
SAME_POWER = 2.0**-40
"""A factor this near to a power of two, as a share of it, is one: the difference is float64 rounding."""


@dataclass(frozen=True, eq=False)
class WeightedSum:
    """sum_i x_i factor_i + constant, for integers x_i, as t_0 >> shift, where y_i = x_i >> pre_shifts[i] and

        t_k = sum_i y_i digits[k][i] + constants[k] + (t_(k+1) >> digit_bits),     the last t without a shifted one.

    Shifts round half up. The digits of level k count 2^-(k digit_bits) of 2^-shift. All but digit_bits are int64 arrays
    that broadcast like the factors.

    t_0 is off by half a unit from shifting t_1 and for each pre-shift that is not 0, by less than 2^-digit_bits from
    deeper levels, and by what the last digits leave of the factors: half a unit, or 2^(shift - EXACT_BITS) if that is
    more.
    """

    pre_shifts: tuple[Array, ...]
    digits: tuple[tuple[Array, ...], ...]
    constants: tuple[Array, ...]
    digit_bits: int
    shift: Array


def power_of_two(factor: Array) -> Array | None:
    """k of factors 2^-k, int64 of their shape; None where one of them is no power of two."""
    if (factor <= 0).any():
        return None
    power: Array = -np.rint(np.log2(factor)).astype(np.int64)
    return power if (np.abs(np.ldexp(factor, power) - 1.0) <= SAME_POWER).all() else None


def fit_weighted_sum(
    factors: Sequence[Array], magnitudes: Sequence[Array], constant: Array, one_shift: bool = False, spare: int = 0
) -> WeightedSum:
    """The weighted sum with the largest shifts, up to 31, at which every step between fits 32 bits.

    factors: float64, of any sign; magnitudes: the largest |x_i| for each of them, of the same shape; constant: float64.
    All broadcast together. one_shift: whether all elements share one. spare: what is to fit beside the sum. Raises
    QuantizationError where no shift fits. What is always 0 has digits of 0, whatever its factor.
    """
    magnitudes = [magnitude.astype(np.float64) for magnitude in magnitudes]
    factors = [np.where(m > 0, factor, 0.0) for factor, m in zip(factors, magnitudes, strict=True)]
    powers = [_powers(factor) for factor in factors]
    if len(factors) == 1 and not constant.any() and powers[0] is not None and _are_shifts(powers[0]):
        return _shift_alone(powers[0])
    # What lower levels carry over: at most one for each unit of the data that has digits there.
    carried = sum(float(m.max()) for m, power in zip(magnitudes, powers, strict=True) if power is None)
    shift = _largest_shift(factors, magnitudes, constant, spare, INT32_MAX - 8 - len(factors) - carried)
    if one_shift:
        shift = shift.min().reshape((1,) * shift.ndim)
    digit_bits = int(np.floor(np.log2((INT32_MAX - 2) / (carried + 2))))
    levels, wholes = _wholes(factors, magnitudes, powers, shift, digit_bits)
    offset = np.rint(np.ldexp(constant, shift + levels * digit_bits)).astype(np.int64)
    # Before the shifts change: one that is there loses bits, which must not count as exact.
    pre_shifts = [_zeros(shift) if power is None else np.clip(power - shift, 0, MAX_SHIFT) for power in powers]
    if levels == 0 and not any(each.any() for each in pre_shifts):
        twos = min(_common_twos([*wholes, offset]), int(shift.min()))
        shift, offset, wholes = shift - twos, offset >> twos, [whole >> twos for whole in wholes]
    split = [_digits(whole, levels, digit_bits) for whole in wholes]
    return WeightedSum(
        tuple(pre_shifts),
        tuple(tuple(each[level] for each in split) for level in range(levels + 1)),
        _floor_digits(offset, levels, digit_bits),
        digit_bits,
        shift,
    )


def _powers(factor: Array) -> Array | None:
    """`power_of_two` of a factor some of whose elements are 0; these take the power of another element, or 0."""
    others = factor[factor != 0]
    return power_of_two(np.where(factor == 0, others[:1] if others.size else 1.0, factor))


def _are_shifts(powers: Array) -> bool:
    return bool(powers.min() >= 0 and powers.max() <= MAX_SHIFT)


def _shift_alone(shift: Array) -> WeightedSum:
    return WeightedSum((_zeros(shift),), ((np.ones_like(shift),),), (_zeros(shift),), 0, shift)


def _zeros(like: Array) -> Array:
    return np.zeros((1,) * like.ndim, np.int64)


def _largest_shift(
    factors: Sequence[Array], magnitudes: Sequence[Array], constant: Array, spare: int, room: float
) -> Array:
    """The largest shift in [0, 31] at which the largest sum and `spare` times 2^shift are at most `room`; int64."""
    total = spare + np.abs(constant) + sum(np.abs(f) * m for f, m in zip(factors, magnitudes, strict=True))
    if (total > room).any():
        largest = max(float(np.abs(factor).max()) for factor in factors)
        raise QuantizationError(f"the rescaling factor {largest:.4g} does not fit 32 bits")
    with np.errstate(divide="ignore"):
        shift = np.clip(np.floor(np.log2(room / total)), 0, MAX_SHIFT).astype(np.int64)
    # The logarithm may be one too large.
    result: Array = np.where((shift > 0) & (np.ldexp(total, shift) > room), shift - 1, shift)
    return result


def _wholes(
    factors: Sequence[Array],
    magnitudes: Sequence[Array],
    powers: Sequence[Array | None],
    shift: Array,
    digit_bits: int,
) -> tuple[int, list[Array]]:
    """The number of levels below the first, and the factors in units of the last, as integers.

    What these leave of the factors is at most what `WeightedSum` states. Powers of two have a leading digit alone.
    """
    allowed = max(0.5, 2.0 ** (int(shift.min()) - EXACT_BITS))
    for levels in count():
        finer = shift + levels * digit_bits
        units = [
            np.ldexp(factor, finer) if power is None else _leading_unit(factor, power, shift, finer)
            for factor, power in zip(factors, powers, strict=True)
        ]
        left = sum(np.abs(u - np.rint(u)) * m for u, m in zip(units, magnitudes, strict=True))
        if np.max(left) <= np.ldexp(allowed, levels * digit_bits):
            break
    return levels, [np.rint(unit).astype(np.int64) for unit in units]


def _leading_unit(factor: Array, power: Array, shift: Array, finer: Array) -> Array:
    """What a factor of 2^-power leaves to its digits beside its pre-shift, in units of 2^-finer; 0 for 0."""
    result: Array = np.ldexp(np.sign(factor), np.maximum(shift - power, 0) + finer - shift)
    return result


def _common_twos(values: Sequence[Array]) -> int:
    """How often 2 divides all of these integers."""
    bits = np.bitwise_or.reduce([int(np.bitwise_or.reduce(value, axis=None)) for value in values])
    return int(bits & -bits).bit_length() - 1 if bits else 0


def _digits(whole: Array, levels: int, digit_bits: int) -> list[Array]:
    """The digits of integers, the leading one first, each with the integer's sign."""
    sign, rest, mask = np.sign(whole), np.abs(whole), (1 << digit_bits) - 1
    lower = [sign * (rest >> (digit_bits * (levels - level)) & mask) for level in range(1, levels + 1)]
    return [sign * (rest >> digit_bits * levels), *lower]


def _floor_digits(whole: Array, levels: int, digit_bits: int) -> tuple[Array, ...]:
    """The digits of `_digits`, all but the leading one at or above 0."""
    mask = (1 << digit_bits) - 1
    lower = [whole >> (digit_bits * (levels - level)) & mask for level in range(1, levels + 1)]
    return (whole >> digit_bits * levels, *lower)
