"""Logic on the bits of integers in two's complement."""

from __future__ import annotations

import numpy as np

from mrt.symbol.interval import Array, Interval
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._checks import require_integer
from mrt.symbol.types import TensorType, arithmetic_dtype, broadcast_shape

_SIGN = np.int64(-(2**63))
"""The bit that tells negative integers; without it they count from 0 on as others do."""


@operator("bitwise_and")
class BitwiseAnd(Operator):
    """The bits that both integers have, with broadcasting: of -6 and 7 it is 2. Gives int32."""

    input_names = ("lhs", "rhs")
    is_elementwise = True

    def infer(self, lhs: TensorType, rhs: TensorType) -> TensorType:
        require_integer(lhs)
        require_integer(rhs)
        return TensorType(broadcast_shape(lhs, rhs), arithmetic_dtype(lhs, rhs))

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        return np.asarray(lhs.astype(np.int64) & rhs.astype(np.int64))

    def bounds(self, lhs: Interval, rhs: Interval) -> Interval:
        """Exact: the hull of what pairs of either sign reach."""
        shape = np.broadcast_shapes(lhs.shape, rhs.shape)
        rank, bits = len(shape), max(int(end).bit_length() for x in (lhs, rhs) for end in (x.min, x.max))
        found = [_of_signs(left, right, min(bits, 63)) for left in _by_sign(lhs, rank) for right in _by_sign(rhs, rank)]
        lo = np.minimum.reduce(np.broadcast_arrays(*(least for least, _ in found)))
        hi = np.maximum.reduce(np.broadcast_arrays(*(most for _, most in found)))
        return Interval.of(lo, hi, shape)


def _by_sign(x: Interval, rank: int) -> list[tuple[Array, Array, bool]]:
    """The negative integers of `x`, then the others: the ends of each, of this rank, and whether they are negative."""
    limits = np.iinfo(np.int64)
    of_rank = Interval.of(x.lo, x.hi, (1,) * (rank - len(x.shape)) + x.shape)
    lo, hi = (np.clip(end, limits.min, limits.max).astype(np.int64) for end in (of_rank.lo, of_rank.hi))
    return [(lo, np.minimum(hi, -1), True), (np.maximum(lo, 0), hi, False)]


def _of_signs(left: tuple[Array, Array, bool], right: tuple[Array, Array, bool], bits: int) -> tuple[Array, Array]:
    """The least and the greatest result of integers of these signs; beyond all others where there are none."""
    (a, b, left_sign), (c, d, right_sign) = left, right
    is_empty = (a > b) | (c > d)
    # Without the sign's bit integers of one sign keep their order.
    a, b = (end ^ _SIGN if left_sign else end for end in (a, b))
    c, d = (end ^ _SIGN if right_sign else end for end in (c, d))
    a, b, c, d = (np.where(is_empty, 0, end) for end in (a, b, c, d))
    ends = _least(a, b, c, d, bits), _most(a, b, c, d, bits)
    least, most = (end ^ _SIGN if left_sign and right_sign else end for end in ends)
    limits = np.iinfo(np.int64)
    return np.where(is_empty, limits.max, least), np.where(is_empty, limits.min, most)


def _least(a: Array, b: Array, c: Array, d: Array, bits: int) -> Array:
    """The least x & y for a <= x <= b and c <= y <= d, all from 0 on.

    From the highest bit that neither a nor c has: one of them may take it, and none below, where that stays in range.
    Source: H. S. Warren, Hacker's Delight, section 4-3.
    """
    done = np.zeros(a.shape, bool)
    for bit in (np.int64(1) << place for place in reversed(range(bits))):
        free = ~done & ((a | c) & bit == 0)
        of_a, of_c = (a | bit) & -bit, (c | bit) & -bit
        takes_a = free & (of_a <= b)
        takes_c = free & ~takes_a & (of_c <= d)
        a, c, done = np.where(takes_a, of_a, a), np.where(takes_c, of_c, c), done | takes_a | takes_c
    return a & c


def _most(a: Array, b: Array, c: Array, d: Array, bits: int) -> Array:
    """The greatest x & y, as `_least`: a bit that one of b and d has alone is given for all below it."""
    done = np.zeros(a.shape, bool)
    for bit in (np.int64(1) << place for place in reversed(range(bits))):
        of_b, of_d = (b & ~bit) | (bit - 1), (d & ~bit) | (bit - 1)
        gives_b = ~done & (b & ~d & bit != 0) & (of_b >= a)
        gives_d = ~done & (d & ~b & bit != 0) & (of_d >= c)
        b, d, done = np.where(gives_b, of_b, b), np.where(gives_d, of_d, d), done | gives_b | gives_d
    return b & d
