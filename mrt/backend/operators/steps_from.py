"""A slice whose first place is an input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.symbol import Array, Interval, Operator, TensorType
from mrt.symbol.operators.transform import SliceAxis


@dataclass(frozen=True)
class StepsFrom(Operator):
    """data[begin : begin + length] along one axis, counted from the front; begin is one int32.

    Slices that differ in where they begin are so one function of it.
    """

    axis: int
    length: int

    op = "steps_from"
    input_names = ("data", "begin")

    def infer(self, x: TensorType, begin: TensorType) -> TensorType:
        return self._at(0).infer(x)

    def evaluate(self, x: Array, begin: Array) -> Array:
        return self._at(int(begin.item())).evaluate(x)

    def bounds(self, x: Interval, begin: Interval) -> Interval:
        return self._at(int(np.asarray(begin.lo).item())).bounds(x)

    def _at(self, begin: int) -> SliceAxis:
        return SliceAxis(axis=self.axis, begin=begin, end=begin + self.length)
