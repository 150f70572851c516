"""Elementwise functions that repeat themselves."""

from __future__ import annotations

import numpy as np

from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import operator
from mrt.symbol.operators.functions import FloatFunction, real

_SLACK = 1e-12
"""By how much more than float64 rounds, an end of an interval may be beyond a half turn."""


@operator("cos")
class Cos(FloatFunction):
    """The cosine of x in radians, elementwise; NaN at infinity. Float only."""

    def evaluate(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.cos(real(x))

    def bounds(self, x: Interval) -> Interval:
        lo, hi = real(x.lo), real(x.hi)
        with np.errstate(all="ignore"):
            ends = np.nan_to_num(np.cos(lo), nan=1.0), np.nan_to_num(np.cos(hi), nan=1.0)
            # The half turns that the interval holds, at which the function is 1 and -1 by turns.
            first = np.ceil(lo / np.pi - _SLACK * (1 + np.abs(lo)))
            turns = np.floor(hi / np.pi + _SLACK * (1 + np.abs(hi))) - first
            is_odd = first % 2 == 1
        is_whole = ~np.isfinite(turns) | (turns >= 1)
        falls, rises = is_whole | ((turns == 0) & is_odd), is_whole | ((turns == 0) & ~is_odd)
        return Interval(np.where(falls, -1.0, np.minimum(*ends)), np.where(rises, 1.0, np.maximum(*ends)), x.shape)
