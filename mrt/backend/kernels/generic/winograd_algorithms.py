"""Winograd's algorithms for 3 x 3 taps, by matrices of integers.

A tile of m x m results y, of a window d of the data and the taps g, is for each channel

    f^2 y = A ((G g Gᵀ) ∘ (D d Dᵀ)) Aᵀ

with the integer matrices below: those of F(m, 3) (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks",
2015), whose fractions are in the factor f. Channels are summed before the results are made, so that each point of the
window's transform is a product of matrices.

With a stride of 2 the first and the third tap along an axis meet every second element, by F(m, 2), and the second tap
meets those between, which it multiplies as they are: the matrices are those of both, side by side.

All sums are formed modulo 2^32. f^2 is a power of 2 times an odd number, and that has an inverse: times the inverse,
f^2 y is 2^shift y. Where |y| < 2^(31 - shift) this is 2^shift y itself, no remainder, and a shift gives y. So nothing
is to be proven of the sums between, if the transformed data and taps fit int16.

Words that are too large for that are 256 h + l, of an upper byte h and a lower one l, whose results are found one by
one; so are the words' own, modulo 2^32.

Of floats the taps are transformed in float64 and divided by f^2, so that the sums make y itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mrt.symbol import Array
from mrt.symbol.bounds import DTYPE_RANGES

TAPS = 3
"""Along each axis."""
Matrix = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class TapSums:
    """What the positive and the negative taps of each output channel add up to, int64 (O,)."""

    positive: Array
    negative: Array

    @classmethod
    def of(cls, weight: Array) -> TapSums:
        """Of taps (O, I, 3, 3) of int8."""
        rows = weight.reshape(len(weight), -1)
        total, magnitude = (part.sum(axis=1, dtype=np.int64) for part in (rows, np.abs(rows, dtype=np.int16)))
        return cls((magnitude + total) // 2, (total - magnitude) // 2)

    def largest(self, lo: int, hi: int) -> int:
        """The largest magnitude of a sum over taps and data in [lo, hi]."""
        ends = hi * self.positive + lo * self.negative, -(lo * self.positive + hi * self.negative)
        return int(np.maximum(*ends).max(initial=0))


@dataclass(frozen=True)
class Algorithm:
    """One of them: for results `tile` x `tile` with a stride, by the matrices D, G and A.

    shift, inverse: what makes y of f^2 y: times the inverse, shifted to the right. data_operations,
    result_operations: on vectors, to transform a tile of the data of some channels, and to make the results of a tile
    for a block of output channels.
    """

    tile: int
    stride: int
    of_data: Matrix
    of_taps: Matrix
    of_results: Matrix
    shift: int
    inverse: int
    data_operations: int
    result_operations: int

    @property
    def window(self) -> int:
        """Elements of the data along each axis that a tile reads."""
        return (self.tile - 1) * self.stride + TAPS

    @property
    def side(self) -> int:
        """Points along each axis, which are products of a tile and a channel. No two algorithms have as many."""
        return len(self.of_data)

    @property
    def points(self) -> int:
        """Of a tile and a channel."""
        return self.side**2

    @property
    def multiple(self) -> int:
        """f^2."""
        return pow(self.inverse, -1, 2**32) << self.shift

    @property
    def reach(self) -> int:
        """The largest magnitude of y."""
        return int(2 ** (31 - self.shift) - 1)

    def serves(self, taps: TapSums, lo: int, hi: int) -> bool:
        """Whether results of data in [lo, hi], with 0 on their border, are exact: int16 holds the data's transform, and
        no sum exceeds `reach`.
        """
        lo, hi = min(lo, 0), max(hi, 0)
        least, most = _ends(self.of_data, lo, hi)
        low, high = DTYPE_RANGES["int16"]
        return low <= least and most <= high and taps.largest(lo, hi) <= self.reach

    def serves_bytes(self, taps: TapSums, lo: int, hi: int) -> bool:
        """The same of both bytes of words in [lo, hi], each by itself."""
        return self.serves(taps, lo >> 8, hi >> 8) and self.serves(taps, 0, 255)

    def transformed_taps(self, taps: Array) -> Array:
        """G g Gᵀ of taps (3, 3, ...), (points, ...): of int8 as integers in float32, which holds all sums between, of
        floats over f^2 as float64."""
        both, flat = np.kron(self.of_taps, self.of_taps), taps.reshape(TAPS**2, -1)
        if taps.dtype.kind == "f":
            # Not by BLAS, whose order of additions may depend on its threads.
            made = np.einsum("pt,tn->pn", both / self.multiple, flat.astype(np.float64))
        else:
            made = both.astype(np.float32) @ flat.astype(np.float32)
        result: Array = made.reshape(self.points, *taps.shape[2:])
        return result


@lru_cache
def _ends(matrix: Matrix, lo: int, hi: int) -> tuple[int, int]:
    """The ends of what a matrix makes of a window of numbers in [lo, hi], applied along both axes."""
    both = np.einsum("pi,qj->pqij", *[np.array(matrix)] * 2).reshape(len(matrix) ** 2, -1)
    positive, negative = np.maximum(both, 0).sum(axis=1), np.minimum(both, 0).sum(axis=1)
    return int((positive * lo + negative * hi).min()), int((positive * hi + negative * lo).max())


F4 = Algorithm(
    tile=4,
    stride=1,
    of_data=(
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
    of_taps=((6, 0, 0), (-4, -4, -4), (-4, 4, -4), (1, 2, 4), (1, -2, 4), (0, 0, 3)),
    of_results=((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 8)),
    shift=6,
    inverse=pow(9, -1, 2**32),
    data_operations=280,
    result_operations=230,
)
"""36 products for 16 results instead of 144, by the points 0, 1, −1, 2, −2 and ∞: 576 y. For data of 8 bits."""
F2 = Algorithm(
    tile=2,
    stride=1,
    of_data=((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    of_taps=((2, 0, 0), (1, 1, 1), (1, -1, 1), (0, 0, 2)),
    of_results=((1, 1, 1, 0), (0, 1, -1, -1)),
    shift=2,
    inverse=1,
    data_operations=80,
    result_operations=60,
)
"""16 products for 4 results instead of 36, by the points 0, 1, −1 and ∞: 4 y. For data of up to 13 bits, or 14 with a
sign."""
F4_OF_STRIDE_2 = Algorithm(
    tile=4,
    stride=2,
    of_data=(
        (2, 0, -1, 0, -2, 0, 1, 0, 0),
        (0, 0, -2, 0, -1, 0, 1, 0, 0),
        (0, 0, 2, 0, -3, 0, 1, 0, 0),
        (0, 0, -1, 0, 0, 0, 1, 0, 0),
        (0, 0, 2, 0, -1, 0, -2, 0, 1),
        (0, 1, 0, 0, 0, 0, 0, 0, 0),
        (0, 0, 0, 1, 0, 0, 0, 0, 0),
        (0, 0, 0, 0, 0, 1, 0, 0, 0),
        (0, 0, 0, 0, 0, 0, 0, 1, 0),
    ),
    of_taps=((3, 0, 0), (-3, 0, -3), (-1, 0, 1), (1, 0, 2), (0, 0, 6), *[(0, 6, 0)] * 4),
    of_results=(
        (1, 1, 1, 1, 0, 1, 0, 0, 0),
        (0, 1, -1, 2, 0, 0, 1, 0, 0),
        (0, 1, 1, 4, 0, 0, 0, 1, 0),
        (0, 1, -1, 8, 1, 0, 0, 0, 1),
    ),
    shift=2,
    inverse=pow(9, -1, 2**32),
    data_operations=440,
    result_operations=340,
)
"""81 products for 16 results instead of 144, by the points 0, 1, −1, 2 and ∞: 36 y. For data of up to 10 bits."""
F2_OF_STRIDE_2 = Algorithm(
    tile=2,
    stride=2,
    of_data=((1, 0, -1, 0, 0), (0, 0, 1, 0, 0), (0, 0, -1, 0, 1), (0, 1, 0, 0, 0), (0, 0, 0, 1, 0)),
    of_taps=((1, 0, 0), (1, 0, 1), (0, 0, 1), (0, 1, 0), (0, 1, 0)),
    of_results=((1, 1, 0, 1, 0), (0, 1, 1, 0, 1)),
    shift=0,
    inverse=1,
    data_operations=85,
    result_operations=70,
)
"""25 products for 4 results instead of 36, by the points 0, 1 and ∞: y itself. For data of up to 14 bits."""
ALGORITHMS = {algorithm.side: algorithm for algorithm in (F4, F2, F4_OF_STRIDE_2, F2_OF_STRIDE_2)}
"""By the points along an axis."""


def algorithm_of(side: int) -> Algorithm:
    """The one of so many points along an axis."""
    return ALGORITHMS[side]
