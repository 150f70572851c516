"""Interpolate: nearest elements, or linear and cubic maps along axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.openvino.node import Node, converter
from mrt.frontend.shared.resizing import (
    COORDINATES,
    HALF,
    LINEAR,
    ROUNDINGS,
    Scaling,
    cubic,
    interpolated,
    interpolation,
    resized,
)
from mrt.symbol import Array, Symbol

_COORDINATES: dict[str, Callable[[Array, Scaling, int, int], Array]] = {
    **{name: COORDINATES[name] for name in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")},
    "tf_half_pixel_for_nn": lambda x, scaled, old, new: scaled(x + HALF),
}
_KERNELS = ("linear", "linear_onnx", "cubic")


@converter("Interpolate")
def interpolate(node: Node) -> Symbol:
    """Operation sets 4 and 11: the new sizes, or the factors, of some axes."""
    data, mode = node.symbol(0), node.text("mode")
    if mode != "nearest" and mode not in _KERNELS:
        raise node.unsupported("attribute mode", mode, f"nearest or one of {[*_KERNELS]}")
    pads = (*node.integers("pads_begin", ()), *node.integers("pads_end", ()))
    if any(pads):
        raise node.unsupported("pads_begin and pads_end", pads, "a Pad before it, and zeros,")
    sizing = _sizing(node, data)
    places = {axis: _places(node, data.shape[axis], new, scale) for axis, (new, scale) in sizing.items()}
    if mode == "nearest":
        return resized(node, data, {axis: _nearest(node, x, sizing[axis][1]) for axis, x in places.items()})
    kernel = cubic(node.number("cube_coeff", -0.75)) if mode == "cubic" else LINEAR
    shrinks = mode != "linear_onnx" and node.flag("antialias", False)
    matrices: dict[int, Array] = {}
    for axis, x in places.items():
        length = data.shape[axis]
        node.made((len(x), length))
        matrices[axis] = interpolation(x, length, kernel, min(sizing[axis][1], 1.0) if shrinks else 1.0)
    return interpolated(node, data, matrices)


def _sizing(node: Node, data: Symbol) -> Mapping[int, tuple[int, float]]:
    """New length and factor of each axis that changes; axes that are not named are all."""
    by_scales = node.text("shape_calculation_mode") == "scales"
    # Operation set 4 has sizes and scales as inputs of their own, the latter floats.
    has_both = node.has(2) and node.known(2, "scales").dtype.kind == "f"
    given = node.known(2 if has_both and by_scales else 1, "scales" if by_scales else "sizes").reshape(-1)
    axes_at = 3 if has_both else 2
    rank = data.type.rank
    axes = (
        [node.axis(axis, rank) for axis in node.known_integers(axes_at, "axes")] if node.has(axes_at) else range(rank)
    )
    if len(given) != len(axes) or not np.isfinite(given).all() or given.min(initial=1) <= 0:
        raise GraphError(
            f"{node.label}: sizes or scales are {given.tolist()} for axes {[*axes]}; one for each is needed"
        )
    lengths = [data.shape[axis] for axis in axes]
    if by_scales:
        scales = [float(scale) for scale in given]
        sizes = [math.floor(np.float32(n) * np.float32(scale)) for n, scale in zip(lengths, scales, strict=True)]
    else:
        sizes = [int(size) for size in given]
        scales = [size / n for size, n in zip(sizes, lengths, strict=True)]
    node.made(sizes)
    found = dict(zip(axes, zip(sizes, scales, strict=True), strict=True))
    return {axis: (size, scale) for axis, (size, scale) in found.items() if (size, scale) != (data.shape[axis], 1.0)}


def _places(node: Node, old: int, new: int, scale: float) -> Array:
    """Where each place of the result lies along an axis of the data, float32."""
    mode = node.text("coordinate_transformation_mode", "half_pixel")
    if mode not in _COORDINATES:
        raise node.unsupported("attribute coordinate_transformation_mode", mode, f"one of {[*_COORDINATES]}")
    x = np.arange(new, dtype=np.float32)
    return np.asarray(_COORDINATES[mode](x, lambda lengths: np.asarray(lengths / np.float32(scale)), old, new))


def _nearest(node: Node, places: Array, scale: float) -> Array:
    rounding = node.text("nearest_mode", "round_prefer_floor")
    if rounding == "simple":
        rounding = "ceil" if scale < 1 else "floor"
    if rounding not in ROUNDINGS:
        raise node.unsupported("attribute nearest_mode", rounding, f"simple or one of {[*ROUNDINGS]}")
    return ROUNDINGS[rounding](places)
