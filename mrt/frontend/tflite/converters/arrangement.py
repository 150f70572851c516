"""Repeating elements and moving them between channels and space."""

from __future__ import annotations

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.resizing import HALF, resized
from mrt.frontend.tflite.layouts import channels_last, image
from mrt.frontend.tflite.node import Node, converter
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.arrangement import DepthToSpace, SpaceToDepth, Tile


@converter("TILE")
def tile(node: Node) -> Symbol:
    data, counts = node.symbol(0), node.known_integers(1, "multiples")
    if len(counts) != data.type.rank or min(counts, default=1) < 1:
        raise GraphError(f"{node.label}: multiples are {counts}; one from 1 on for each axis of {data.type} is needed")
    return node.apply(Tile(reps=counts), [data])


@converter("DEPTH_TO_SPACE")
def depth_to_space(node: Node) -> Symbol:
    """The block's place is the outer part of the channel, as in MXNet."""
    operator = DepthToSpace(block_size=node.options("DepthToSpaceOptions").integer("BlockSize"))
    data = image(node)
    return channels_last(node, 4, lambda suffix: node.apply(operator, [data], suffix))


@converter("SPACE_TO_DEPTH")
def space_to_depth(node: Node) -> Symbol:
    operator = SpaceToDepth(block_size=node.options("SpaceToDepthOptions").integer("BlockSize"))
    data = image(node)
    return channels_last(node, 4, lambda suffix: node.apply(operator, [data], suffix))


@converter("RESIZE_NEAREST_NEIGHBOR")
def resize(node: Node) -> Symbol:
    """Height and width to the sizes of the second input."""
    options, data, sizes = node.options("ResizeNearestNeighborOptions"), image(node), node.known_integers(1, "size")
    if len(sizes) != 2:
        raise GraphError(f"{node.label}: size is {sizes}; height and width are needed")
    corners, half = options.flag("AlignCorners"), options.flag("HalfPixelCenters")
    sources = {
        axis: _nearest(old, node.places(new), corners, half)
        for axis, (old, new) in enumerate(zip(data.shape[2:], sizes, strict=True), start=2)
    }
    return channels_last(node, 4, lambda suffix: resized(node, data, sources, suffix))


def _nearest(old: int, new: int, corners: bool, half: bool) -> Array:
    """The element of `old` that each of `new` places is the nearest to, in float32 as TFLite computes it.

    Place i is at (i + 1/2) old / new with half pixel centers, else at i old / new, rounded down; with corners aligned
    at i (old - 1) / (new - 1), rounded to the nearest, halves up.
    """
    places = np.arange(new, dtype=np.float32) + (HALF if half else np.float32(0))
    if corners and new > 1:
        scaled = places * (np.float32(old - 1) / np.float32(new - 1))
    else:
        scaled = places * (np.float32(old) / np.float32(new))
    return np.asarray(np.floor(scaled + HALF if corners else scaled))
