"""Sums, products and shifts in int16, of which a vector holds twice as many as of 32 bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.symbol import Array, Interval, TensorType
from mrt.symbol.operator import Operator
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.integer import RightShift

BITS = 16
MOST_UNSIGNED = 2**BITS - 1
"""The largest integer of 16 bits without a sign."""


@dataclass(frozen=True)
class WordSum(ElemwiseAdd):
    """lhs + rhs in int16, which holds the sum."""

    op = "word_sum"

    def infer(self, lhs: TensorType, rhs: TensorType) -> TensorType:
        return super().infer(lhs, rhs).with_dtype("int16")


@dataclass(frozen=True)
class WordShift(RightShift):
    """x / 2^shift rounded half up, of a word x, in int16; 0 <= shift <= 15."""

    op = "word_shift"

    def infer(self, x: TensorType, shift: TensorType) -> TensorType:
        return super().infer(x, shift).with_dtype("int16")


@dataclass(frozen=True)
class UpperWord(BroadcastMul):
    """floor(x · f / 2^16) of words x and f, in int16: what processors give for vectors of words.

    Also of an int32 x, 0 < f < 2^15, if int16 holds the result.
    """

    op = "upper_word"

    def infer(self, lhs: TensorType, rhs: TensorType) -> TensorType:
        return super().infer(lhs, rhs).with_dtype("int16")

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        product: Array = super().evaluate(lhs, rhs) >> BITS
        return product

    def bounds(self, lhs: Interval, rhs: Interval) -> Interval:
        return super().bounds(lhs, rhs).map(lambda bound: bound >> BITS)


@dataclass(frozen=True)
class WordScale(Operator):
    """(w + 2^(s-17)) >> (s - 16) in int16, of w = x · f / 2^16 rounded down, of an int32 x.

    This is x · f / 2^s rounded half up, since 2^16 divides 2^(s-1). Held to [0, 2^16 - 1] is x, where that is done
    early, or else w, of which no product is above an int32. 0 < f < 2^15 and 17 <= s <= 31, so that an int16 holds the
    result.
    """

    early: bool = True

    op = "word_scale"
    input_names = ("data", "factor", "shift")

    def infer(self, x: TensorType, factor: TensorType, shift: TensorType) -> TensorType:
        return RightShift().infer(BroadcastMul().infer(x, factor), shift).with_dtype("int16")

    def evaluate(self, x: Array, factor: Array, shift: Array) -> Array:
        return RightShift().evaluate(self._word(x, factor), shift - BITS)

    def bounds(self, x: Interval, factor: Interval, shift: Interval) -> Interval:
        least, most = self._word(x.lo, factor.lo), self._word(x.hi, factor.hi)
        word = Interval.of(least, most, tuple(np.broadcast_shapes(x.shape, factor.shape)))
        return RightShift().bounds(word, shift.map(lambda bound: bound - BITS))

    def _word(self, x: Array, factor: Array) -> Array:
        held = np.clip(x, 0, MOST_UNSIGNED) if self.early else x
        word: Array = np.clip((held.astype(np.int64) * factor) >> BITS, 0, MOST_UNSIGNED)
        return word
