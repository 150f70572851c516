"""FakeQuantize: a float tensor rounded to a number of levels between limits, as trained quantization has it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.grid import Grid
from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._checks import require_float
from mrt.symbol.types import TensorType, broadcast_shape

LEAST_LEVELS, MOST_LEVELS = 2, 2**16


@operator("FakeQuantize")
class FakeQuantize(Operator):
    """x rounded to one of `levels` equidistant values of the input's range, which stand for those of the output's:

        output_low                                                   where x <= min(input_low, input_high)
        output_high                                                  where x > max(input_low, input_high)
        rint((x - input_low) / (input_high - input_low) * (levels - 1))
            / (levels - 1) * (output_high - output_low) + output_low     elsewhere

    in float32, rint rounding half to even. The limits broadcast to the data. Equal input limits make it binary, and
    input_low above input_high turns the order between them round. Source: FakeQuantize-1 of OpenVINO's operation set.
    """

    levels: int

    input_names = ("data", "input_low", "input_high", "output_low", "output_high")
    is_elementwise = True
    is_trained_quantizer = True

    def infer(
        self,
        data: TensorType,
        input_low: TensorType,
        input_high: TensorType,
        output_low: TensorType,
        output_high: TensorType,
    ) -> TensorType:
        if not LEAST_LEVELS <= self.levels <= MOST_LEVELS:
            raise GraphError(f"levels is {self.levels}; {LEAST_LEVELS} to {MOST_LEVELS} are needed")
        inputs = [require_float(x) for x in (data, input_low, input_high, output_low, output_high)]
        if broadcast_shape(*inputs) != data.shape:
            found = ", ".join(map(str, inputs[1:]))
            raise GraphError(f"the limits are {found}; shapes that broadcast to the data's, {data}, are needed")
        return data

    def evaluate(self, data: Array, *limits: Array) -> Array:
        x, low, high, first, last = (np.asarray(value, np.float32) for value in (data, *limits))
        top = np.float32(self.levels - 1)
        with np.errstate(all="ignore"):
            between = self._steps(x, low, high) / top * (last - first) + first
        return np.where(x <= np.minimum(low, high), first, np.where(x > np.maximum(low, high), last, between))

    def level_of(self, data: Array, *limits: Array) -> Array:
        """Which of the levels each value is rounded to, 0 to levels - 1; int64."""
        x, low, high = (np.asarray(value, np.float32) for value in (data, *limits[:2]))
        steps = self._steps(x, low, high)
        top = np.float32(self.levels - 1)
        result: Array = np.where(x <= np.minimum(low, high), 0, np.where(x > np.maximum(low, high), top, steps))
        return result.astype(np.int64)

    def grid(self, limits: Sequence[Array], rank: int) -> Grid:
        """Its steps and zero points for data of this rank."""
        return Grid.of(self.levels, limits, rank)

    def _steps(self, x: Array, low: Array, high: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(np.rint((x - low) / (high - low) * np.float32(self.levels - 1)))

    def bounds(
        self,
        data: Interval,
        input_low: Interval,
        input_high: Interval,
        output_low: Interval,
        output_high: Interval,
    ) -> Interval:
        """What the ends of the data give where the limits are known and in order; else all that the limits allow."""
        limits = (input_low, input_high, output_low, output_high)
        known = all(limit.is_constant for limit in limits)
        if known and bool((input_low.lo <= input_high.lo).all()):
            values = [limit.lo for limit in limits]
            # NaN-free: infinite ends of the data lie outside of the limits.
            ends = [self.evaluate(end, *values).astype(np.float64) for end in (data.lo, data.hi)]
        else:
            ends = [end.astype(np.float64) for limit in limits[2:] for end in (limit.lo, limit.hi)]
        lo, hi = ends[0], ends[0]
        for end in ends[1:]:
            lo, hi = np.minimum(lo, end), np.maximum(hi, end)
        return Interval.of(lo, hi, data.shape)
