"""Products of bytes whose pairs are added up in int16, as `DotInstruction.widens` says: where none can saturate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.symbol import Array, Interval
from mrt.symbol.bounds import DTYPE_RANGES

OFFSETS = (16, 8, 4, 2, 32, 128)
"""What is added to data below 0, in the order in which it is tried. What follows a SiLU is a little below 0 at most.
They are few, so that tensors that lie together agree, and kernels are shared; 2 leaves room for any weights."""
ROWS = 16
"""Output channels whose weights are looked at together: of most layers a few show that pairs may saturate."""


@dataclass(frozen=True)
class Pairs:
    """What pairs are made of.

    data: what is known of it. are_neighbours: whether what follows each other along axis 1 of the weight is multiplied
    by what does so in memory; what is flattened need not be.
    """

    data: Interval
    are_neighbours: bool = True

    def offset(self, weight: Array) -> int | None:
        """What memory holds more than the data, so that no product with a weight (O, I, ...) of int8 saturates in its
        pair; None where one might.

        Weights are looked at one by one only where the largest does not settle it.
        """
        most = max(int(weight.max()), -int(weight.min()))
        offset = offset_of_pairs(2 * most, self.data)
        if offset is not None or not self.are_neighbours or offset_of_pairs(most, self.data) is None:
            return offset
        largest = most
        for first in range(0, len(weight), ROWS):
            largest = max(largest, _largest_pair(weight[first : first + ROWS]))
            offset = offset_of_pairs(largest, self.data)
            if offset is None:
                return None
        return offset


def offset_of_pairs(pair: int, data: Interval) -> int | None:
    """The same for weights of which two neighbours of one sign add up to `pair` at most."""
    offsets = (0,) if data.min >= 0 else OFFSETS
    fitting = (each for each in offsets if data.min >= -each and pair <= most_pair(int(data.max) + each))
    return next(fitting, None)


def most_pair(largest: int) -> int:
    """What two weights of one sign may add up to, so that their products with data of up to `largest` fit int16."""
    return DTYPE_RANGES["int16"][1] // max(largest, 1)


def _largest_pair(weight: Array) -> int:
    """What two neighbours of one sign along axis 1 add up to at most."""
    wide = weight.astype(np.int16)
    return max(int((part[:, :-1] + part[:, 1:]).max(initial=0)) for part in (np.maximum(wide, 0), np.maximum(-wide, 0)))
