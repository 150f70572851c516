"""A tensor times a ramp of itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.symbol import Array, Interval, Operator, TensorType
from mrt.symbol.operators.integer import LeftShift, RightShift


@dataclass(frozen=True)
class TimesRamp(Operator):
    """x * min(max(2^finer x + start, 0), most) in int32, of one number each.

    2^finer x is rounded half up by an addition: there is room for it above the largest x.
    """

    finer: int = 0

    op = "times_ramp"
    input_names = ("data", "start", "most")
    is_elementwise = True

    def infer(self, x: TensorType, start: TensorType, most: TensorType) -> TensorType:
        return TensorType(x.shape, "int32")

    def evaluate(self, x: Array, start: Array, most: Array) -> Array:
        wide = x.astype(np.int64)
        return np.asarray(wide * self._ramp(wide, start, most), np.int32)

    def bounds(self, x: Interval, start: Interval, most: Interval) -> Interval:
        """As if both factors were independent: the ramp never falls."""
        ends = [self._ramp(bound.astype(np.int64), start.lo, most.lo) for bound in (x.lo, x.hi)]
        products = [bound * end for bound in (x.lo, x.hi) for end in ends]
        return Interval.of(np.minimum.reduce(products), np.maximum.reduce(products), x.shape)

    def _ramp(self, x: Array, start: Array, most: Array) -> Array:
        shift = LeftShift() if self.finer > 0 else RightShift()
        scaled = shift.evaluate(x, np.array(abs(self.finer)))
        return np.asarray(np.minimum(np.maximum(scaled + start, 0), most))
