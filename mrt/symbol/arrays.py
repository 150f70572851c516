"""Arrays of whoever calls: what NumPy cannot read is an error of the tensor's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mrt.errors import DataError
from mrt.symbol.interval import Array


def as_array(value: Any, name: str) -> Array:
    """`value` as an array; DataError naming it where NumPy makes none of it, such as of lists of different lengths.

    Of a tensor of PyTorch its values are taken, wherever they are and whatever learns from them; bfloat16, which NumPy
    does not have, as float32.
    """
    if isinstance(value, np.ndarray):
        return value
    try:
        if hasattr(value, "detach") and hasattr(value, "cpu"):
            value = value.detach().cpu()
            value = value.float() if str(value.dtype).endswith("bfloat16") else value
        return np.asarray(value)
    except Exception as error:  # tensors of other libraries raise what they like
        raise DataError(f"{name} is a {type(value).__name__} that is no array: {error}") from None


def named_inputs(x: Array | Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """`x` by input name: an array serves a single input; DataError for missing or unknown names."""
    if not isinstance(x, Mapping):
        if len(names) != 1:
            raise DataError(f"one array is given, the model has the inputs {list(names)}; give a mapping")
        return {names[0]: x}
    if set(x) != set(names):
        raise DataError(f"inputs {sorted(map(str, x))} are given, {sorted(names)} are needed")
    return dict(x)
