"""Resizing of images: to the nearest element, and linearly between elements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.resizing import HALF, LINEAR, interpolated, interpolation, resized
from mrt.frontend.tflite.layouts import channels_last, image
from mrt.frontend.tflite.node import Node, converter
from mrt.symbol import Array, Symbol

_Places = Callable[[int, int, bool, bool], Array]


@converter("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest(node: Node) -> Symbol:
    data, sources = _placed(node, "ResizeNearestNeighborOptions", _nearest)
    return channels_last(node, 4, lambda suffix: resized(node, data, sources, suffix))


@converter("RESIZE_BILINEAR")
def resize_bilinear(node: Node) -> Symbol:
    """A product with a matrix along each axis; places beyond an end are that end."""
    options = node.options("ResizeBilinearOptions")
    if options.flag("AlignCorners") and options.flag("HalfPixelCenters"):
        raise node.unsupported("AlignCorners", "set beside HalfPixelCenters", "one of them")
    data, places = _placed(node, "ResizeBilinearOptions", _between)
    matrices = {axis: interpolation(found, data.shape[axis], LINEAR) for axis, found in places.items()}
    return channels_last(node, 4, lambda suffix: interpolated(node, data, matrices, suffix))


def _placed(node: Node, kind: str, places: _Places) -> tuple[Symbol, dict[int, Array]]:
    """The image, channels first, and where in it height and width of the sizes in the second input lie."""
    options, data, sizes = node.options(kind), image(node), node.known_integers(1, "size")
    if len(sizes) != 2:
        raise GraphError(f"{node.label}: size is {sizes}; height and width are needed")
    corners, half = options.flag("AlignCorners"), options.flag("HalfPixelCenters")
    return data, {
        axis: places(old, node.places(new), corners, half)
        for axis, (old, new) in enumerate(zip(data.shape[2:], sizes, strict=True), start=2)
    }


def _scale(old: int, new: int, corners: bool) -> np.float32:
    """How far neighbours of the result are apart in the data, in float32 as TFLite computes it."""
    return np.float32(old - 1) / np.float32(new - 1) if corners and new > 1 else np.float32(old) / np.float32(new)


def _nearest(old: int, new: int, corners: bool, half: bool) -> Array:
    """The element of `old` that each of `new` places is the nearest to.

    Place i is at (i + 1/2) old / new with half pixel centers, else at i old / new, rounded down; with corners aligned
    at i (old - 1) / (new - 1), rounded to the nearest, halves up.
    """
    places = np.arange(new, dtype=np.float32) + (HALF if half else np.float32(0))
    scaled = places * _scale(old, new, corners)
    return np.asarray(np.floor(scaled + HALF if corners else scaled))


def _between(old: int, new: int, corners: bool, half: bool) -> Array:
    """Where each of `new` places lies among the elements of `old`.

    Place i is at (i + 1/2) scale - 1/2 with half pixel centers, else at i scale; see _scale.
    """
    places, scale = np.arange(new, dtype=np.float32), _scale(old, new, corners)
    return np.asarray((places + HALF) * scale - HALF if half else places * scale)
