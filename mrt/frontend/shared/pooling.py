"""Pooling over windows that the operator Pooling does not have: with gaps between elements, or of uneven sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.mapping import mapped
from mrt.frontend.shared.node import ModelNode
from mrt.symbol import Symbol
from mrt.symbol.operators.selection import ElemwiseMaximum
from mrt.symbol.operators.transform import Take


@dataclass(frozen=True)
class Window:
    """The elements of one window along one axis, and how many places it counts, padding included."""

    elements: tuple[int, ...]
    places: int


def dilated_windows(
    length: int, kernel: int, stride: int, dilation: int, begin: int, end: int, count: int
) -> list[Window]:
    """The windows along an axis of `length` elements with padding before and after them."""
    windows = []
    for start in range(-begin, -begin + count * stride, stride):
        places = [place for place in range(start, start + kernel * dilation, dilation) if place < length + end]
        windows.append(Window(tuple(place for place in places if 0 <= place < length), len(places)))
    return windows


def adaptive_windows(length: int, count: int) -> list[Window]:
    """`count` windows that share an axis as evenly as may be: the i-th from ⌊i n / count⌋ to ⌈(i + 1) n / count⌉."""
    spans = [(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]
    return [Window(tuple(range(begin, end)), end - begin) for begin, end in spans]


def pooled(
    node: ModelNode,
    data: Symbol,
    windows: Mapping[int, Sequence[Window]],
    kind: str,
    counts_padding: bool,
    suffix: str = "",
) -> Symbol:
    """The "max", "avg" or "sum" of each window, the product of its windows along the named axes; axis by axis.

    counts_padding: an average divides by the places of a window, not by its elements. GraphError where a window has no
    element.
    """
    for axis, along in windows.items():
        if not along or not all(window.elements for window in along):
            raise GraphError(
                f"{node.label}: a window along axis {axis} of {data.type} holds padding only, or none fits"
            )
    for index, (axis, along) in enumerate(windows.items()):
        name = suffix if index == len(windows) - 1 else f"axis{axis}"
        pool = _maximum if kind == "max" else _average if kind == "avg" else _sum
        data = pool(node, data, axis, along, counts_padding, name)
    return data


def _maximum(
    node: ModelNode, data: Symbol, axis: int, windows: Sequence[Window], counts_padding: bool, suffix: str
) -> Symbol:
    """The largest of the first elements of all windows, the second ones, …; a window with fewer repeats its last."""
    longest = max(len(window.elements) for window in windows)
    node.made((longest, len(windows)))
    result: Symbol | None = None
    for place in range(longest):
        indices = np.array([window.elements[min(place, len(window.elements) - 1)] for window in windows], np.int32)
        name = f"axis{axis}_element{place}"
        last = place == longest - 1
        taken = node.apply(
            Take(axis=axis), [data, node.parameter(indices, f"{name}_indices")], suffix if longest == 1 else name
        )
        if result is None:
            result = taken
        else:
            result = node.apply(ElemwiseMaximum(), [result, taken], suffix if last else f"{name}_maximum")
    return data if result is None else result


def _average(
    node: ModelNode, data: Symbol, axis: int, windows: Sequence[Window], counts_padding: bool, suffix: str
) -> Symbol:
    weights = [1 / (window.places if counts_padding else len(window.elements)) for window in windows]
    return _weighted(node, data, axis, windows, weights, suffix)


def _sum(
    node: ModelNode, data: Symbol, axis: int, windows: Sequence[Window], counts_padding: bool, suffix: str
) -> Symbol:
    return _weighted(node, data, axis, windows, [1.0] * len(windows), suffix)


def _weighted(
    node: ModelNode, data: Symbol, axis: int, windows: Sequence[Window], weights: Sequence[float], suffix: str
) -> Symbol:
    matrix = np.zeros(node.made((len(windows), data.shape[axis])))
    for row, window, weight in zip(matrix, windows, weights, strict=True):
        row[list(window.elements)] = weight
    return mapped(node, data, axis, matrix, suffix)
