"""Resizing: where each place of the result lies in the data, and the operators that take or interpolate it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from mrt.frontend.shared.mapping import mapped
from mrt.frontend.shared.node import ModelNode
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
    "half_pixel_symmetric": lambda x, scaled, old, new: _middle(old, new, scaled) + scaled(x + HALF) - HALF,
}
"""Where each place of the result (float32) lies in the data, given both lengths, by mode of ONNX and TVM."""


def _middle(old: int, new: int, scaled: Scaling) -> Array:
    """How far the middle of the data lies from that of the result, whose length a scale may have rounded down."""
    return (np.float32(old) - scaled(np.asarray(new, np.float32))) / np.float32(2)


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
        if len(inside) != length or not np.array_equal(inside, np.arange(length)):
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


@dataclass(frozen=True)
class Kernel:
    """How much an element counts by its distance, and the distance from which on it counts nothing."""

    weight: Callable[[Array], Array]
    reach: int


LINEAR = Kernel(lambda distance: np.maximum(1.0 - distance, 0.0), 1)


def cubic(a: float) -> Kernel:
    """Keys, Cubic Convolution Interpolation for Digital Image Processing, equation 4, with a free parameter."""

    def weight(t: Array) -> Array:
        near = ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0
        far = ((a * t - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a
        return np.where(t <= 1.0, near, np.where(t < 2.0, far, 0.0))

    return Kernel(weight, 2)


def interpolation(places: Array, length: int, kernel: Kernel, shrink: float = 1.0, inside_only: bool = False) -> Array:
    """The matrix (places, length) that interpolates `length` elements at places among them; its rows add up to 1.

    shrink: below 1 the kernel is as much wider, which keeps a smaller result free of aliases. Elements outside count as
    the outermost one, or with inside_only nothing.
    """
    reach = math.ceil(kernel.reach / shrink)
    first = np.floor(places).astype(np.int64) - reach
    matrix = np.zeros((len(places), length))
    rows = np.arange(len(places))
    for step in range(2 * reach + 2):
        element = first + step
        weights = kernel.weight(np.abs(element - places.astype(np.float64)) * shrink)
        if inside_only:
            weights = np.where((element >= 0) & (element < length), weights, 0.0)
        np.add.at(matrix, (rows, np.clip(element, 0, length - 1)), weights)
    return np.asarray(matrix / matrix.sum(axis=1, keepdims=True))


def interpolated(node: ModelNode, data: Symbol, matrices: Mapping[int, Array], suffix: str = "") -> Symbol:
    """`data` mapped along each named axis by its matrix, as it is along those whose matrix changes nothing."""
    changing = {axis: m for axis, m in matrices.items() if not np.array_equal(m, np.eye(data.shape[axis]))}
    for index, (axis, matrix) in enumerate(changing.items()):
        data = mapped(node, data, axis, matrix, suffix if index == len(changing) - 1 else f"axis{axis}")
    return data
