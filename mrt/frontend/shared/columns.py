"""Windows laid back into the image that they were taken from, which ONNX calls Col2Im and PyTorch fold."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mrt.errors import GraphError
from mrt.symbol import Array


def window_counts(
    label: str,
    columns: tuple[int, ...],
    image: Sequence[int],
    window: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    pads: Sequence[int],
) -> tuple[int, ...]:
    """How many windows lie along each axis of an image; columns: of shape (N, C window size, number of windows).

    pads: before and after every axis together. GraphError where the columns are not those of such windows.
    """
    counts = tuple(
        (size + pad - gap * (n - 1) - 1) // step + 1
        for size, n, step, gap, pad in zip(image, window, stride, dilation, pads, strict=True)
    )
    size = math.prod(window)
    if len(columns) != 3 or min(counts) < 1 or columns[2] != math.prod(counts) or not size or columns[1] % size:
        raise GraphError(
            f"{label}: data of shape {columns} are no columns of {counts} windows {tuple(window)} "
            f"of an image {tuple(image)}"
        )
    return counts


def laying(channels: int, window: Sequence[int]) -> Array:
    """The weight (C window size, 1, *window) of the transposed convolution, of C groups, that lays windows into an
    image: each element of a window has its own place.
    """
    size = math.prod(window)
    return np.tile(np.eye(size, dtype=np.float32).reshape(size, 1, *window), (channels, *(1,) * (len(window) + 1)))
