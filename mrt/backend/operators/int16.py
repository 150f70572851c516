"""Sums, products and shifts in int16, of which a vector holds twice as many as of 32 bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.symbol import Array, Interval, TensorType
from mrt.symbol.operator import Operator
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.integer import RightShift

BITS = 16
MOST_UNSIGNED = 2**BITS - 1
"""The largest integer of 16 bits without a sign."""


@dataclass(frozen=True)
class AddInt16(BroadcastAdd):
    """lhs + rhs in int16, which holds the sum, with broadcasting."""

    op = "add_int16"

    def infer(self, lhs: TensorType, rhs: TensorType) -> TensorType:
        return super().infer(lhs, rhs).with_dtype("int16")


@dataclass(frozen=True)
class RightShiftInt16(RightShift):
    """x / 2^shift rounded half up, of an x of 16 bits, in int16; 0 <= shift <= 15."""

    op = "right_shift_int16"

    def infer(self, x: TensorType, shift: TensorType) -> TensorType:
        return super().infer(x, shift).with_dtype("int16")


@dataclass(frozen=True)
class MultiplyHighInt16(BroadcastMul):
    """floor(x · f / 2^16) of x and f of 16 bits, in int16: processors have an instruction for vectors of them.

    Also of an int32 x, 0 < f < 2^15, if int16 holds the result.
    """

    op = "multiply_high_int16"

    def infer(self, lhs: TensorType, rhs: TensorType) -> TensorType:
        return super().infer(lhs, rhs).with_dtype("int16")

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        product: Array = super().evaluate(lhs, rhs) >> BITS
        return product

    def bounds(self, lhs: Interval, rhs: Interval) -> Interval:
        return super().bounds(lhs, rhs).map(lambda bound: bound >> BITS)


@dataclass(frozen=True)
class RequantizeInt16(Operator):
    """(w + 2^(s-17)) >> (s - 16) in int16, of w = x · f / 2^16 rounded down, of an int32 x.

    This is x · f / 2^s rounded half up, since 2^16 divides 2^(s-1). 0 < f < 2^15 and 17 <= s <= 31, so that an int16
    holds the result.

    clips_data: whether x is clipped to [0, 2^16 - 1]; else w is, and no product x · f exceeds an int32.
    """

    clips_data: bool = True

    op = "requantize_int16"
    input_names = ("data", "factor", "shift")

    def infer(self, x: TensorType, factor: TensorType, shift: TensorType) -> TensorType:
        return RightShift().infer(BroadcastMul().infer(x, factor), shift).with_dtype("int16")

    def evaluate(self, x: Array, factor: Array, shift: Array) -> Array:
        return RightShift().evaluate(self._upper_half(x, factor), shift - BITS)

    def bounds(self, x: Interval, factor: Interval, shift: Interval) -> Interval:
        least, most = self._upper_half(x.lo, factor.lo), self._upper_half(x.hi, factor.hi)
        upper = Interval.of(least, most, tuple(np.broadcast_shapes(x.shape, factor.shape)))
        return RightShift().bounds(upper, shift.map(lambda bound: bound - BITS))

    def _upper_half(self, x: Array, factor: Array) -> Array:
        clipped = np.clip(x, 0, MOST_UNSIGNED) if self.clips_data else x
        upper: Array = np.clip((clipped.astype(np.int64) * factor) >> BITS, 0, MOST_UNSIGNED)
        return upper
