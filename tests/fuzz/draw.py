"""What is drawn at random: numbers that lie at ends more often than chance would have it, shapes, arrays."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeVar

import numpy as np

from mrt.symbol import Array
from mrt.symbol.bounds import DTYPE_RANGES

_Item = TypeVar("_Item")
LENGTHS = (1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65)
"""What axes are long: 1, powers of two and their neighbours, and odd numbers."""
DTYPES = tuple(DTYPE_RANGES)


class Draw:
    """A source of chance that gives the same for the same numbers."""

    def __init__(self, *seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def integer(self, lo: int, hi: int) -> int:
        """lo <= n <= hi, each as likely."""
        return int(self.random.integers(lo, hi, endpoint=True))

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def choice(self, items: Sequence[_Item]) -> _Item:
        return items[self.integer(0, len(items) - 1)]

    def number(self, lo: int, hi: int) -> int:
        """lo <= n <= hi: an end, a power of two or beside one, near 0, or any."""
        kind = self.integer(0, 4)
        power = self.choice((-1, 1)) * 2 ** self.integer(0, 31) + self.integer(-1, 1)
        found = (lo, hi, power, self.integer(-3, 3), self.integer(lo, hi))[kind]
        return min(max(found, lo), hi)

    def interval(self, dtype: str) -> tuple[int, int]:
        """Integers of a dtype: half of the time all of them."""
        lo, hi = DTYPE_RANGES[dtype]
        if self.chance(0.5):
            return lo, hi
        a, b = self.number(lo, hi), self.number(lo, hi)
        return min(a, b), max(a, b)

    def shape(self, rank: int, most: int = 2048) -> tuple[int, ...]:
        """Of at most `most` elements."""
        shape = [self.choice(LENGTHS) for _ in range(rank)]
        while prod(shape) > most:
            longest = max(range(rank), key=shape.__getitem__)
            shape[longest] = self.integer(1, max(shape[longest] // 2, 1))
        return tuple(shape)

    def array(self, shape: Sequence[int], dtype: str, lo: int, hi: int) -> Array:
        """Integers of [lo, hi]: all alike, at the ends and 0, or any."""
        kind = self.integer(0, 5)
        if kind == 0:
            return np.full(shape, self.choice((lo, hi)), dtype)
        if kind == 1:
            ends = [lo, min(max(0, lo), hi), hi]
            return np.array(ends)[self.random.integers(0, 3, shape)].astype(dtype).reshape(shape)
        return self.random.integers(lo, hi, shape, endpoint=True).astype(dtype)

    def divisor(self, n: int) -> int:
        return self.choice([d for d in range(1, n + 1) if n % d == 0])
