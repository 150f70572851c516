"""Roundings to one side as a shift that rounds half up: what is added before it, by the sign of what is rounded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.symbol import Array

SAME_BITS = 14
"""What is within 2^-14 of a step of an integer, or of a half, is taken as that: float32 tells them no better apart."""
DIRECTED_ROOM = 2
"""How many steps may be added before the shift."""


@dataclass(frozen=True, eq=False)
class DirectedRounding:
    """t + base + factor clip(t, *side), which a shift that rounds half up brings to the integer that is meant.

    base and factor: int64, of the shape of the shift.
    """

    base: Array
    factor: Array
    side: tuple[int, int]


def directed_rounding(rounding: str, shift: Array) -> DirectedRounding:
    """The rounding of t / 2^shift by any of `ROUNDINGS` that goes to one side, or whose halves do.

    With h = 2^(shift - 1), and e the units that count as none, a shift that rounds half up gives

        floor(t / 2^shift + e)  of  t - h + e,         ceil(t / 2^shift - e)  of  t + h - 1 - e,
        halves up               of  t + e,             halves down            of  t - 1 - e.

    What a rounding takes of these differs with the sign of t, and is the same at 0. Nothing is added for a shift of 0.
    """
    is_shifted = shift > 0
    half = np.where(is_shifted, np.int64(1) << np.maximum(shift - 1, 0), 0)
    same = np.where(shift > SAME_BITS, np.int64(1) << np.maximum(shift - SAME_BITS, 0), 0)
    unit = np.where(is_shifted, 1, 0)
    floor, half_up = same - half, same
    # From there to a ceiling, and to halves that go down.
    to_ceil, to_half_down = 2 * half - unit - 2 * same, -unit - 2 * same
    nothing, below, above = np.zeros_like(half), (-1, 0), (0, 1)
    return {
        "floor": DirectedRounding(floor, nothing, below),
        "ceil": DirectedRounding(floor + to_ceil, nothing, below),
        "toward_zero": DirectedRounding(floor, -to_ceil, below),
        "away_from_zero": DirectedRounding(floor, to_ceil, above),
        "half_away_from_zero": DirectedRounding(half_up, -to_half_down, below),
        "half_toward_zero": DirectedRounding(half_up, to_half_down, above),
    }[rounding]
