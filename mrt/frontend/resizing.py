"""Resizing to the nearest element: where each place of the result lies in the data, and the operators that move it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from mrt.frontend.node import ModelNode
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.arrangement import Repeat, UpSampling
from mrt.symbol.operators.transform import Take

Scaling = Callable[[Array], Array]
"""From lengths in the result to lengths in the data, float32."""

HALF = np.float32(0.5)

COORDINATES: dict[str, Callable[[Array, Scaling, int, int], Array]] = {
    "half_pixel": lambda x, scaled, old, new: scaled(x + HALF) - HALF,
    "pytorch_half_pixel": lambda x, scaled, old, new: scaled(x + HALF) - HALF if new > 1 else 0 * x,
    "asymmetric": lambda x, scaled, old, new: scaled(x),
    "align_corners": lambda x, scaled, old, new: x * np.float32(old - 1) / np.float32(max(new - 1, 1)),
}
"""Where each place of the result (float32) lies in the data, given both lengths, by mode of ONNX and TVM."""

ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - HALF),
    "round_prefer_ceil": lambda x: np.floor(x + HALF),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""The element that is the nearest to a place in the data."""


def resized(node: ModelNode, data: Symbol, sources: Mapping[int, Array], suffix: str = "") -> Symbol:
    """The elements of `data` at the indices of each named axis; indices past an end mean the element there.

    Case 1: an image whose height and width grow by one whole factor is upsampled. Case 2: an axis that grows by a
    whole factor is repeated. Case 3: else elements are taken by index.
    """
    moved: dict[int, Array] = {}
    for axis, indices in sources.items():
        length = data.shape[axis]
        inside = np.clip(indices, 0, length - 1).astype(np.int32)
        if not np.array_equal(inside, np.arange(length)):
            moved[axis] = inside
    times = {axis: _times(indices, data.shape[axis]) for axis, indices in moved.items()}
    if set(times) == {2, 3} and data.type.rank == 4 and times[2] == times[3] > 0:
        return node.apply(UpSampling(scale=times[2]), [data], suffix)
    for index, (axis, indices) in enumerate(moved.items()):
        name = suffix if index == len(moved) - 1 else f"axis{axis}"
        if times[axis]:
            data = node.apply(Repeat(repeats=times[axis], axis=axis), [data], name)
        else:
            data = node.apply(Take(axis=axis), [data, node.parameter(indices, f"indices{axis}")], name)
    return data


def _times(indices: Array, length: int) -> int:
    """How often each of `length` elements is repeated if that gives these indices, else 0."""
    times, rest = divmod(len(indices), length)
    return 0 if rest or not np.array_equal(indices, np.repeat(np.arange(length), times)) else times
