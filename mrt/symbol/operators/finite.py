"""What tells numbers that are not finite from the others. Integers stand for finite ones only."""

from __future__ import annotations

import numpy as np

from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import operator
from mrt.symbol.operators.functions import FloatFunction, real


class _Tells(FloatFunction):
    """What is 1 of some numbers that are not finite and 0 of all finite ones."""

    def bounds(self, x: Interval) -> Interval:
        """Known where both ends are finite; NaN has no place in bounds, and may come of any that are infinite."""
        finite = np.isfinite(real(x.lo)) & np.isfinite(real(x.hi))
        return Interval(np.zeros(finite.shape), np.where(finite, 0.0, 1.0), x.shape)


@operator("isnan")
class IsNan(_Tells):
    """1 where x is no number, else 0. Float only."""

    def evaluate(self, x: Array) -> Array:
        return np.isnan(real(x)).astype(np.float64)


@operator("isinf")
class IsInf(_Tells):
    """1 where x is positive or negative infinity, as far as these are detected, else 0. Float only."""

    negative: bool = True
    positive: bool = True

    def evaluate(self, x: Array) -> Array:
        x = real(x)
        return np.asarray((x == np.inf) * self.positive + (x == -np.inf) * self.negative, np.float64)
