"""Arrays of whoever calls: what NumPy cannot read is an error of the tensor's name."""

from __future__ import annotations

from typing import Any

import numpy as np

from mrt.errors import DataError
from mrt.symbol.interval import Array


def as_array(value: Any, name: str) -> Array:
    """`value` as an array; DataError naming it where NumPy makes none of it, such as of lists of different lengths."""
    try:
        return np.asarray(value)
    except Exception as error:  # tensors of other libraries raise what they like
        raise DataError(f"{name} is a {type(value).__name__} that is no array: {error}") from None
