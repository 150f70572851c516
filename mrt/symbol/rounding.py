"""How a quantizer rounds: the modes by name, each as its meaning on real numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

HALF_EVEN = "half_even"
HALF_ODD = "half_odd"
"""Halves to odd, which no operator asks for: half to even of integers that count from an odd one."""
SIGN = "sign"

ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    HALF_EVEN: np.rint,
    HALF_ODD: lambda x: np.rint(x - 1) + 1,
    "floor": np.floor,
    "ceil": np.ceil,
    "toward_zero": np.trunc,
    "away_from_zero": lambda x: np.where(x < 0, np.floor(x), np.ceil(x)),
    "half_away_from_zero": lambda x: np.where(x < 0, -np.floor(0.5 - x), np.floor(x + 0.5)),
    "half_toward_zero": lambda x: np.where(x < 0, -np.ceil(-x - 0.5), np.ceil(x - 0.5)),
    SIGN: lambda x: np.where(x >= 0, 1.0, -1.0),
}
"""What is rounded to what. `sign` has two values, 1 at and above 0 and -1 below."""


def rounded_steps(steps: Array, zero_point: Array, rounding: str, zero_point_first: bool) -> Array:
    """round(steps) + zero_point, or round(steps + zero_point); float64. steps: float32, in which the latter adds."""
    round_to = ROUNDINGS[rounding]
    if zero_point_first:
        return round_to(steps + zero_point.astype(np.float32)).astype(np.float64)
    return round_to(steps).astype(np.float64) + zero_point
