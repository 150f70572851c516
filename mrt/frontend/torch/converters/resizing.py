"""Resizing to the nearest element or linearly between two, and moving channels into space."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax

from mrt.frontend.shared.resizing import LINEAR, cubic, interpolation
from mrt.frontend.torch.building import mapped, taken
from mrt.frontend.torch.node import Expression, Node, converter, importers_own, shape_of
from mrt.symbol import Array

importers_own("pixel_shuffle.default")

_OVERLOADS = ("vec", "default")
_EXACT = tuple(f"_upsample_nearest_exact{count}d.{overload}" for count in (1, 2, 3) for overload in _OVERLOADS)
_PLAIN = tuple(f"upsample_nearest{count}d.{overload}" for count in (1, 2, 3) for overload in _OVERLOADS)
_LINEAR = ("upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec")


@converter(*_PLAIN, *_EXACT)
def nearest(node: Node) -> Expression:
    """Element min(floor(i s), n - 1) for place i of an axis of n elements, or min(floor((i + 1/2) s), n - 1) if exact.

    s is 1 / scale where scale factors are given, else the quotient of the lengths, in float32. An image that grows by a
    whole factor is resized as a whole, any other tensor axis by axis.
    """
    data = node.tensor("input" if "input" in node.arguments else "self")
    old, new = shape_of(data)[2:], node.shape[2:]
    shift = 0.5 if node.operator in _EXACT else 0.0
    sources = []
    for length, result, step in zip(old, new, _steps(node, old, new), strict=True):
        places = np.floor((np.arange(*node.made(result), dtype=np.float32) + np.float32(shift)) * step)
        sources.append(np.minimum(places, length - 1).astype(np.int64))
    factors = {_factor(indices, length) for indices, length in zip(sources, old, strict=True)}
    if len(old) == 2 and len(factors) == 1 and factors != {0}:
        return relax.op.image.resize2d(
            data, new, method="nearest_neighbor", coordinate_transformation_mode="asymmetric", rounding_method="floor"
        )
    for axis, (indices, length) in enumerate(zip(sources, old, strict=True), start=2):
        factor = _factor(indices, length)
        if factor != 1:
            grown = relax.op.repeat(data, factor, axis) if factor else taken(data, axis, indices)
            data = node.emit(grown)
    return data


@converter(*_LINEAR)
def linear(node: Node) -> Expression:
    """A product with a matrix of weights for each axis.

    Place i of an axis lies at max((i + 1/2) s - 1/2, 0), with s as for the nearest, or at i (n - 1) / (m - 1) where
    corners are aligned, and is weighted by the distances to the two elements around it.
    """
    data = node.tensor("input")
    old, new = shape_of(data)[2:], node.shape[2:]
    for axis, (length, result, step) in enumerate(zip(old, new, _steps(node, old, new), strict=True), start=2):
        places = np.arange(node.made(result, length)[0], dtype=np.float32)
        if node.flag("align_corners"):
            lies = places * (np.float32(length - 1) / np.float32(max(result - 1, 1)))
        else:
            lies = np.maximum((places + np.float32(0.5)) * step - np.float32(0.5), np.float32(0))
        if not np.array_equal(lies, np.arange(length)):
            data = mapped(node, data, axis, _weights(lies, length))
    return data


_SMOOTH = {
    "upsample_bicubic2d.vec": (cubic(-0.75), False),
    "_upsample_bicubic2d_aa.vec": (cubic(-0.5), True),
    "_upsample_bilinear2d_aa.vec": (LINEAR, True),
}
"""The kernel, and whether it grows with a result that is smaller, which keeps that free of aliases."""


@converter(*_SMOOTH)
def smooth(node: Node) -> Expression:
    """A product with a matrix of weights for each axis, of the places that `linear` has, unlimited at the ends.

    Elements outside are the outermost one; against aliases they count nothing.
    """
    data = node.tensor("input")
    kernel, shrinks = _SMOOTH[node.operator]
    old, new = shape_of(data)[2:], node.shape[2:]
    for axis, (length, result, step) in enumerate(zip(old, new, _steps(node, old, new), strict=True), start=2):
        places = np.arange(node.made(result, length)[0], dtype=np.float64)
        aligned = node.flag("align_corners")
        size = (length - 1) / max(result - 1, 1) if aligned else float(step)
        # Against aliases PyTorch aligns corners in the step alone.
        lies = places * size if aligned and not shrinks else (places + 0.5) * size - 0.5
        shrink = 1 / max(size, 1.0) if shrinks else 1.0
        matrix = interpolation(lies, length, kernel, shrink, inside_only=shrinks)
        if not np.array_equal(matrix, np.eye(length)):
            data = mapped(node, data, axis, matrix)
    return data


def _weights(places: Array, length: int) -> Array:
    """For each place between elements the weights (places, length) of the elements."""
    matrix = np.zeros((len(places), length))
    rows, below = np.arange(len(places)), np.minimum(np.floor(places).astype(np.int64), length - 1)
    share = places - below
    np.add.at(matrix, (rows, below), 1 - share)
    np.add.at(matrix, (rows, np.minimum(below + 1, length - 1)), share)
    return matrix


def _steps(node: Node, old: Sequence[int], new: Sequence[int]) -> list[np.float32]:
    """How far apart neighbours of the result lie in the data, along each axis."""
    if node.operator.endswith(".vec"):
        scales = node.arguments["scale_factors"] or [None] * len(old)
    else:
        names = ("scales",) if len(old) == 1 else ("scales_d", "scales_h", "scales_w")[-len(old) :]
        scales = [node.arguments[name] for name in names]
    return [
        np.float32(1 / scale) if scale else np.float32(length) / np.float32(result)
        for scale, length, result in zip(scales, old, new, strict=True)
    ]


def _factor(indices: Array, length: int) -> int:
    """How often each element is repeated, 0 where not all are alike."""
    factor, rest = divmod(len(indices), length)
    return 0 if rest or not np.array_equal(indices, np.repeat(np.arange(length), factor)) else factor
