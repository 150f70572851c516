"""Integer square roots, and divisions with what they leave: of integers alone."""

from __future__ import annotations

import numpy as np

from mrt.errors import GraphError, QuantizationError
from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._checks import require_integer
from mrt.symbol.types import INT32_MAX, TensorType, arithmetic_dtype, broadcast_shape

MAX_FRACTION_BITS = 12
"""The most fraction bits of a root: the remainder that a kernel carries then stays within 32 bits."""


@operator("integer_sqrt")
class IntegerSqrt(Operator):
    """floor(sqrt(x) * 2^fraction_bits) of integers 0 <= x < 2^31, exact. Gives int32.

    A kernel finds one bit of the root at a time: 16 + fraction_bits steps on a root and a remainder, no floats.
    """

    fraction_bits: int = 0

    def infer(self, x: TensorType) -> TensorType:
        if not 0 <= self.fraction_bits <= MAX_FRACTION_BITS:
            raise GraphError(f"fraction_bits is {self.fraction_bits}; 0 to {MAX_FRACTION_BITS} are needed")
        return require_integer(x).with_dtype(arithmetic_dtype(x))

    def evaluate(self, x: Array) -> Array:
        if x.size and (x.min() < 0 or x.max() > INT32_MAX):
            raise GraphError(f"data is in [{x.min()}, {x.max()}]; 0 to {INT32_MAX} is needed")
        return self._root(x)

    def bounds(self, x: Interval) -> Interval:
        self._check(x)
        return x.map(self._root)

    def intermediates(self, x: Interval) -> tuple[Interval, ...]:
        """The remainder before a step subtracts from it: at most 4 r + 3, r being the root so far without its last bit
        doubled."""
        self._check(x)
        return (Interval.of(0, 4 * self._root(x.hi) + 3, x.shape),)

    def _root(self, x: Array) -> Array:
        # Below 2^31 * 4^12 = 2^55 the float64 root is off by one at most.
        square = x.astype(np.int64) << 2 * self.fraction_bits
        root = np.floor(np.sqrt(square.astype(np.float64))).astype(np.int64)
        root = np.where(root * root > square, root - 1, root)
        result: Array = np.where((root + 1) * (root + 1) <= square, root + 1, root)
        return result

    def _check(self, x: Interval) -> None:
        if x.min < 0 or x.max > INT32_MAX:
            raise QuantizationError(f"{self.op}: its data is in {x}; 0 to {INT32_MAX} is needed, clip it first")


class _Division(Operator):
    """What a division by integers of 1 or more shares. Gives int32; a divisor that may be below 1 is refused."""

    input_names = ("lhs", "rhs")

    def infer(self, lhs: TensorType, rhs: TensorType) -> TensorType:
        require_integer(lhs)
        require_integer(rhs)
        return TensorType(broadcast_shape(lhs, rhs), arithmetic_dtype(lhs, rhs))

    def _check(self, rhs: Interval) -> None:
        if rhs.min < 1:
            raise QuantizationError(f"{self.op}: its divisor is in {rhs}; 1 or more is needed, clip it first")

    def _checked(self, rhs: Array) -> Array:
        if rhs.size and rhs.min() < 1:
            raise GraphError(f"{self.op}: the divisor holds {rhs.min()}; 1 or more is needed")
        return rhs.astype(np.int64)


@operator("floor_divide")
class FloorDivide(_Division):
    """floor(lhs / rhs) of integers with broadcasting, rhs >= 1: for -7 and 2 it is -4. Gives int32.

    A divisor that may be below 1 is refused by its bounds.
    """

    family = "division"

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        return np.asarray(np.floor_divide(lhs.astype(np.int64), self._checked(rhs)))

    def bounds(self, lhs: Interval, rhs: Interval) -> Interval:
        self._check(rhs)
        # A larger divisor brings the quotient nearer to 0 (or -1), so that the extremes lie at the divisor's ends.
        lo = np.minimum(np.floor_divide(lhs.lo, rhs.lo), np.floor_divide(lhs.lo, rhs.hi))
        hi = np.maximum(np.floor_divide(lhs.hi, rhs.lo), np.floor_divide(lhs.hi, rhs.hi))
        return Interval.of(lo, hi, np.broadcast_shapes(lhs.shape, rhs.shape))


@operator("floor_mod")
class FloorMod(_Division):
    """lhs - rhs floor(lhs / rhs) of integers with broadcasting, rhs >= 1: for -7 and 2 it is 1. Gives int32.

    It lies in [0, rhs - 1]. A divisor that may be below 1 is refused by its bounds.
    """

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        return np.asarray(np.mod(lhs.astype(np.int64), self._checked(rhs)))

    def bounds(self, lhs: Interval, rhs: Interval) -> Interval:
        """Exact where the divisor is known, or larger than the number."""
        self._check(rhs)
        multiple = np.floor_divide(lhs.lo, rhs.lo)
        # The remainder rises with the number where none of these is the next multiple.
        rises = (np.floor_divide(lhs.hi, rhs.lo) == multiple) & ((rhs.lo == rhs.hi) | (multiple == 0))
        most = np.where(lhs.lo >= 0, np.minimum(lhs.hi, rhs.hi - 1), rhs.hi - 1)
        offset = multiple * rhs.lo
        lo, hi = np.where(rises, lhs.lo - offset, 0), np.where(rises, lhs.hi - offset, most)
        return Interval.of(lo, hi, np.broadcast_shapes(lhs.shape, rhs.shape))
