"""Repeating elements and moving them between channels and space: Tile, Resize, DepthToSpace, SpaceToDepth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.resizing import COORDINATES, ROUNDINGS, resized
from mrt.frontend.shuffling import shuffled
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.arrangement import DepthToSpace, SpaceToDepth, Tile


@converter("Tile")
def tile(node: Node) -> Symbol:
    data, repeats = node.symbol(0), node.given_integers(1, "repeats")
    if repeats is None or len(repeats) != data.type.rank or min(repeats, default=1) < 0:
        raise GraphError(f"{node.label}: repeats are {repeats}; one count for each axis of {data.type} is needed")
    if 0 in repeats:
        raise node.unsupported("input repeats", repeats, "a count of at least 1 for each axis")
    return node.apply(Tile(reps=repeats), [data])


@converter("DepthToSpace")
def depth_to_space(node: Node) -> Symbol:
    """Mode DCR is MXNet's; CRD, where the channels come first, is a shuffle of its own."""
    data, size, mode = node.symbol(0), node.integer("blocksize", 0), node.text("mode", "DCR")
    if mode == "DCR":
        return node.apply(DepthToSpace(block_size=size), [data])
    if mode != "CRD":
        raise node.unsupported("attribute mode", mode, "DCR or CRD")
    return shuffled(node, data, size)


@converter("SpaceToDepth")
def space_to_depth(node: Node) -> Symbol:
    return node.apply(SpaceToDepth(block_size=node.integer("blocksize", 0)), [node.symbol(0)])


@converter("Resize", "Upsample")
def resize(node: Node) -> Symbol:
    """Mode nearest: each axis is repeated where that is what it comes to, else its elements are taken by index."""
    mode = node.text("mode", "nearest")
    if mode != "nearest":
        raise node.unsupported("attribute mode", mode, "nearest")
    if node.opset < 11:
        return _resized(node, *_by_scales(node, 1), "asymmetric", "floor")
    coordinates = node.text("coordinate_transformation_mode", "half_pixel")
    rounding = node.text("nearest_mode", "round_prefer_floor")
    if not node.has(3) or not node.known(3, "sizes").size:
        return _resized(node, *_by_scales(node, 2), coordinates, rounding)
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        raise node.unsupported("attribute keep_aspect_ratio_policy", policy, "stretch")
    shape = node.shape(0)
    sizes = [int(size) for size in _for_each_axis(node, node.known(3, "sizes"), list(shape))]
    return _resized(node, [size / n for size, n in zip(sizes, shape, strict=True)], sizes, coordinates, rounding)


def _by_scales(node: Node, index: int) -> tuple[list[float], list[int]]:
    """The scale that input `index` gives each axis, and the size that follows, in float32 as ONNX Runtime has it."""
    shape = node.shape(0)
    scales = _for_each_axis(node, node.known(index, "scales"), [1.0] * len(shape))
    sizes = [math.floor(np.float32(n) * np.float32(scale)) for n, scale in zip(shape, scales, strict=True)]
    return scales, sizes


def _for_each_axis(node: Node, values: Array, others: Sequence[float]) -> list[float]:
    """`values` of the axes that the node names, all by default, and `others` of the rest."""
    rank = len(others)
    axes = node.integers("axes") if node.opset >= 18 else None
    places = [*range(rank)] if axes is None else [node.axis(axis, rank) for axis in axes]
    if values.shape != (len(places),):
        raise GraphError(
            f"{node.label}: scales or sizes are {values.tolist()}; one for each of axes {places} is needed"
        )
    given = dict(zip(places, values.tolist(), strict=True))
    return [given.get(axis, other) for axis, other in enumerate(others)]


def _resized(node: Node, scales: Sequence[float], sizes: Sequence[int], coordinates: str, rounding: str) -> Symbol:
    """The data with the element nearest to each place of a tensor of `sizes`."""
    data = node.symbol(0)
    if min(sizes, default=1) < 1 or min(scales, default=1) <= 0:
        raise GraphError(f"{node.label}: {data.type} by scales {scales} to sizes {sizes}; positive ones are needed")
    if coordinates not in COORDINATES:
        raise node.unsupported("attribute coordinate_transformation_mode", coordinates, f"one of {[*COORDINATES]}")
    if rounding not in ROUNDINGS:
        raise node.unsupported("attribute nearest_mode", rounding, f"one of {[*ROUNDINGS]}")
    sources = {}
    for axis, (old, new, scale) in enumerate(zip(data.shape, sizes, scales, strict=True)):
        scaled = partial(_divided, by=np.float32(scale))
        places = COORDINATES[coordinates](np.arange(new, dtype=np.float32), scaled, old, new)
        sources[axis] = ROUNDINGS[rounding](places)
    return resized(node, data, sources)


def _divided(lengths: Array, by: np.float32) -> Array:
    return np.asarray(lengths / by)
