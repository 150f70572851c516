"""Which samples of a source are taken, and in which order."""

from __future__ import annotations

import numpy as np

from mrt.config import Choice
from mrt.errors import DataError
from mrt.symbol import Array


def chosen(config: Choice, size: int, name: str) -> slice | Array:
    """The places of the samples in a source of `size`, for an array's index; `samples` is not heeded here.

    Where they are shuffled, int64 [samples]: of a seed and a size always the same. DataError where the slice asks for
    more than there are.
    """
    start, stop = config.slice
    if size and max(start + 1, stop or 0) > size:
        raise DataError(f"{name}: the slice [{start}, {stop}] is asked for, there are {size} samples")
    if config.shuffle is None:
        return slice(start, stop)
    # NumPy promises that this generator's numbers never change.
    order: Array = np.random.RandomState(config.shuffle).permutation(size)[start:stop]
    return order
