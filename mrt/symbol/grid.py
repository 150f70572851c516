"""The steps and zero points of FakeQuantize: which integers it rounds to, and what these stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

RESOLUTION = 2.0**-21
"""Limits are float32: their differences tell a zero point no better than to this share of the levels."""


@dataclass(frozen=True, eq=False)
class Grid:
    """q = sign * clip(rint(x / step_in + zero_in), lo, hi), which stands for step_out * (q - zero_out).

    step_in is 0 where the limits of the input are equal, so that only x <= threshold is told from x > threshold, and
    negative where they are in the wrong order. step_out is positive; sign is -1 where the output falls, 0 where it has
    one value. All are float64 (sign int64) of the rank of the data, each axis 1 or full.
    Source of the formulas: FakeQuantize as quantization and dequantization, S = (high - low) / (levels - 1) and
    Z = -low / S of its input and of its output; signed integers are these less Z0 = levels / 2.
    """

    step_in: Array
    zero_in: Array
    threshold: Array
    step_out: Array
    zero_out: Array
    sign: Array
    lo: int
    hi: int

    @classmethod
    def of(cls, levels: int, limits: Sequence[Array], rank: int) -> Grid:
        """The grid of a FakeQuantize of these limits (input_low, input_high, output_low, output_high)."""
        low, high, first, last = (compact(ranked(np.asarray(limit, np.float64), rank)) for limit in limits)
        top = levels - 1
        step_in = (high - low) / top
        rises = (last - first) / top
        is_flat = rises == 0
        # Where the output has one value, it is the real of the integer 0.
        step_out = np.where(is_flat, np.where(first == 0, 1.0, np.abs(first)), np.abs(rises))
        sign = np.sign(rises).astype(np.int64)
        zero_in = np.divide(-low, step_in, out=np.zeros_like(step_in + low), where=step_in != 0)
        zero_out = -first / step_out
        grid = cls(step_in, zero_in, low, step_out, zero_out, sign, 0, top)
        return grid._moved(_centre(levels, sign, snapped(zero_out, levels)))

    def _moved(self, by: int) -> Grid:
        """The grid whose integers are less by `by`, before their sign."""
        return replace(
            self,
            zero_in=snapped(self.zero_in, self.hi + 1) - by,
            zero_out=snapped(self.zero_out, self.hi + 1) - by * self.sign,
            lo=self.lo - by,
            hi=self.hi - by,
        )

    @property
    def has_integer_output_zero(self) -> bool:
        """Whether the zero points of the output are integers."""
        return bool((self.zero_out == np.rint(self.zero_out)).all())

    @property
    def integer_limits(self) -> tuple[int, int]:
        """The least and the greatest q."""
        ends = [int(end) for sign in np.unique(self.sign).tolist() for end in (sign * self.lo, sign * self.hi)]
        return min(ends), max(ends)


def _centre(levels: int, sign: Array, zero_out: Array) -> int:
    """What to subtract from the integers: half the levels where that makes the zero point 0, or where they need more
    than 8 bits, since those are stored signed."""
    half = levels // 2
    is_central = bool((sign == 1).all() and np.isin(zero_out, (half, (levels - 1) / 2)).all())
    return half if is_central or levels > 2**8 else 0


def snapped(zero: Array, levels: int) -> Array:
    """Zero points that are integers as far as float32 limits tell, as integers."""
    nearest = np.rint(zero)
    return np.where(np.abs(zero - nearest) <= levels * RESOLUTION, nearest, zero)


def ranked(values: Array, rank: int) -> Array:
    """`values` with leading axes of length 1 up to `rank`."""
    return values.reshape((1,) * (rank - values.ndim) + values.shape)


def compact(values: Array) -> Array:
    """`values` cut to length 1 along every axis where they do not vary."""
    for axis in range(values.ndim):
        first = values.take([0], axis) if values.shape[axis] > 1 else values
        values = first if (values == first).all() else values
    return values
