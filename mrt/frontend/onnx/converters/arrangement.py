"""Repeating elements and moving them between channels and space: Tile, Resize, DepthToSpace, SpaceToDepth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shared.resizing import COORDINATES, LINEAR, ROUNDINGS, cubic, interpolated, interpolation, resized
from mrt.frontend.shared.shuffling import shuffled, unshuffled
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.arrangement import DepthToSpace, SpaceToDepth, Tile
from mrt.symbol.operators.broadcast import BroadcastAdd


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
    """Mode CRD, of which each channel becomes neighbours, orders the channels of MXNet's, which is DCR, anew."""
    data, size, mode = node.symbol(0), node.integer("blocksize", 0), node.text("mode", "DCR")
    if mode == "CRD":
        return unshuffled(node, data, size)
    if mode != "DCR":
        raise node.unsupported("attribute mode", mode, "DCR or CRD")
    return node.apply(SpaceToDepth(block_size=node.integer("blocksize", 0)), [node.symbol(0)])


@dataclass(frozen=True)
class _Sizing:
    """What a Resize makes of each axis: the length, and how much longer than that of the data it counts as."""

    sizes: Sequence[int]
    scales: Sequence[float]


@converter("Resize", "Upsample")
def resize(node: Node) -> Symbol:
    """Mode nearest: each axis is repeated where that is what it comes to, else its elements are taken by index.
    Modes linear and cubic: a linear map along each axis.
    """
    data, sizing = node.symbol(0), _sizing(node)
    sizes, scales = sizing.sizes, sizing.scales
    if min(sizes, default=1) < 1 or min(scales, default=1) <= 0:
        raise GraphError(f"{node.label}: {data.type} by scales {scales} to sizes {sizes}; positive ones are needed")
    places = {
        axis: _places(node, axis, old, new, scale)
        for axis, (old, new, scale) in enumerate(zip(data.shape, sizes, scales, strict=True))
        if (old, scale) != (new, 1.0) or _crops(node)
    }
    outside = {axis: (x < 0) | (x > data.shape[axis] - 1) for axis, x in places.items() if _crops(node)}
    if node.text("mode", "nearest") == "nearest" and not any(map(np.any, outside.values())):
        return resized(node, data, {axis: _nearest(node, x) for axis, x in places.items()})
    matrices = {axis: _matrix(node, x, data.shape[axis], scales[axis]) for axis, x in places.items()}
    for axis, rows in outside.items():
        matrices[axis][rows] = 0.0
    value = node.number("extrapolation_value", 0.0)
    if not value or not any(map(np.any, outside.values())):
        return interpolated(node, data, matrices)
    inside = np.ones(node.made(sizes), bool)
    for axis, rows in outside.items():
        inside &= ~rows.reshape(-1, *(1,) * (len(sizes) - axis - 1))
    border = node.parameter(np.where(inside, 0.0, value), "border")
    return node.apply(BroadcastAdd(), [interpolated(node, data, matrices, "inside"), border])


def _sizing(node: Node) -> _Sizing:
    if node.opset < 11:
        return _by_scales(node, 1)
    if not node.has(3) or not node.known(3, "sizes").size:
        return _by_scales(node, 2)
    shape = node.shape(0)
    sizes = [int(size) for size in _for_each_axis(node, node.known(3, "sizes"), list(shape))]
    scales = [size / max(n, 1) for size, n in zip(sizes, shape, strict=True)]
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return _Sizing(sizes, scales)
    choices = {"not_larger": min, "not_smaller": max}
    if policy not in choices:
        raise node.unsupported("attribute keep_aspect_ratio_policy", policy, "stretch, not_larger or not_smaller")
    named = _named_axes(node)
    one = choices[policy](scales[axis] for axis in named)
    return _Sizing(
        [math.floor(one * n + 0.5) if axis in named else n for axis, n in enumerate(shape)],
        [one if axis in named else 1.0 for axis in range(len(shape))],
    )


def _by_scales(node: Node, index: int) -> _Sizing:
    """The scale that input `index` gives each axis, and the size that follows, in float32 as ONNX Runtime has it."""
    shape = node.shape(0)
    scales = _for_each_axis(node, node.known(index, "scales"), [1.0] * len(shape))
    sizes = [math.floor(np.float32(n) * np.float32(scale)) for n, scale in zip(shape, scales, strict=True)]
    return _Sizing(sizes, scales)


def _for_each_axis(node: Node, values: Array, others: Sequence[float]) -> list[float]:
    """`values` of the axes that the node names, all by default, and `others` of the rest."""
    places = _named_axes(node)
    if values.shape != (len(places),):
        raise GraphError(
            f"{node.label}: scales or sizes are {values.tolist()}; one for each of axes {places} is needed"
        )
    given = dict(zip(places, values.tolist(), strict=True))
    return [given.get(axis, other) for axis, other in enumerate(others)]


def _named_axes(node: Node) -> list[int]:
    rank = len(node.shape(0))
    axes = node.integers("axes") if node.opset >= 18 else None
    return [*range(rank)] if axes is None else [node.axis(axis, rank) for axis in axes]


def _crops(node: Node) -> bool:
    return _coordinates(node) == "tf_crop_and_resize"


def _coordinates(node: Node) -> str:
    return "asymmetric" if node.opset < 11 else node.text("coordinate_transformation_mode", "half_pixel")


def _places(node: Node, axis: int, old: int, new: int, scale: float) -> Array:
    """Where each place of the result lies along an axis of the data, in float32 as ONNX Runtime has it."""
    node.made((new,))
    x = np.arange(new, dtype=np.float32)
    coordinates = _coordinates(node)
    if coordinates == "tf_crop_and_resize":
        begin, end = _region(node, axis)
        if new == 1:
            return np.asarray(np.float32(0.5) * (begin + end) * np.float32(old - 1) + x)
        return np.asarray(begin * np.float32(old - 1) + x * (end - begin) * np.float32(old - 1) / np.float32(new - 1))
    if coordinates not in COORDINATES:
        known = [*COORDINATES, "tf_crop_and_resize"]
        raise node.unsupported("attribute coordinate_transformation_mode", coordinates, f"one of {known}")
    return np.asarray(COORDINATES[coordinates](x, partial(_divided, by=np.float32(scale)), old, new))


def _region(node: Node, axis: int) -> tuple[np.float32, np.float32]:
    """Begin and end of the part of an axis that is resized, as fractions; the begins of all axes stand first."""
    named = _named_axes(node)
    region = node.known(1, "roi")
    if region.shape != (2 * len(named),):
        raise GraphError(f"{node.label}: roi has shape {region.shape}; ({2 * len(named)},) is needed")
    if axis not in named:
        return np.float32(0), np.float32(1)
    place = named.index(axis)
    return np.float32(region[place]), np.float32(region[place + len(named)])


def _divided(lengths: Array, by: np.float32) -> Array:
    return np.asarray(lengths / by)


def _nearest(node: Node, places: Array) -> Array:
    rounding = "floor" if node.opset < 11 else node.text("nearest_mode", "round_prefer_floor")
    if rounding not in ROUNDINGS:
        raise node.unsupported("attribute nearest_mode", rounding, f"one of {[*ROUNDINGS]}")
    return ROUNDINGS[rounding](places)


def _matrix(node: Node, places: Array, length: int, scale: float) -> Array:
    """The matrix that gives the element, or the elements weighted, at places along an axis."""
    node.made((len(places), length))
    mode = node.text("mode", "nearest")
    if mode == "nearest":
        places = _nearest(node, places)
    elif mode not in ("linear", "cubic"):
        raise node.unsupported("attribute mode", mode, "nearest, linear or cubic")
    kernel = cubic(node.number("cubic_coeff_a", -0.75)) if mode == "cubic" else LINEAR
    antialiases = mode != "nearest" and bool(node.integer("antialias", 0))
    inside_only = mode != "nearest" and bool(node.integer("exclude_outside", 0))
    return interpolation(places, length, kernel, min(scale, 1.0) if antialiases else 1.0, inside_only)
