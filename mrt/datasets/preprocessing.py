"""What is done to samples before a network sees them: layout, scale, mean and deviation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mrt.config import Preprocessing
from mrt.errors import DataError
from mrt.symbol import Array


def preprocess(x: Array, config: Preprocessing, name: str) -> Array:
    """((x in `layout`) * scale - mean) / std in float32; DataError where the layout or the channels do not fit."""
    if config.layout is not None:
        source, _, target = config.layout.partition("->")
        if x.ndim != len(source):
            raise DataError(
                f"{name}: the layout {config.layout} needs {len(source)} axes, the array has {list(x.shape)}"
            )
        x = x.transpose([source.index(axis) for axis in target])
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is found, and named, when it is read
        value: Array = np.ascontiguousarray(x, np.float32)
        if config.scale != 1:
            value = value * np.float32(config.scale)
        if any(config.mean):
            value = value - _by_channel(config.mean, value, f"{name}: mean")
        if any(v != 1 for v in config.std):
            value = value / _by_channel(config.std, value, f"{name}: std")
    return value


def keeps_values(config: Preprocessing) -> bool:
    """Whether the values stay what they are, whatever becomes of their order."""
    return config.scale == 1 and not any(config.mean) and all(deviation == 1 for deviation in config.std)


def _by_channel(values: Sequence[float], x: Array, what: str) -> Array:
    array = np.asarray(values, np.float32)
    if array.size == 1:
        return array.reshape(())
    if x.ndim < 2 or x.shape[1] != array.size:
        raise DataError(f"{what} has {array.size} values, axis 1 of the samples {list(x.shape)} has another length")
    return array.reshape(1, -1, *(1,) * (x.ndim - 2))
