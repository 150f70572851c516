"""Repeating elements and resizing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.folding import check_size
from mrt.frontend.shared.resizing import (
    COORDINATES,
    HALF,
    LINEAR,
    ROUNDINGS,
    Kernel,
    cubic,
    interpolated,
    interpolation,
    resized,
)
from mrt.frontend.shared.sampling import sampled
from mrt.frontend.shared.slicing import sliced
from mrt.frontend.tvm.layouts import channels_first, in_layout
from mrt.frontend.tvm.node import TVMNode
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.arrangement import Repeat


def repeat(node: TVMNode) -> Symbol:
    """Without an axis the data is flattened before."""
    data, given = node.symbol(0), node.optional_integer("axis")
    axis = None if given is None else node.axis(given, data.type.rank)
    return node.apply(Repeat(repeats=node.integer("repeats"), axis=axis), [data])


def flip(node: TVMNode) -> Symbol:
    """A slice from the last element of the axis to the first."""
    data = node.symbol(0)
    axis = node.axis(node.integer("axis"), data.type.rank)
    return sliced(node, data, {axis: slice(None, None, -1)}) if data.shape[axis] > 1 else data


def grid_sample(node: TVMNode) -> Symbol:
    """The coordinates of the grid lie along its axis 1."""
    layout = node.text("layout")
    if layout not in ("NCHW", "NCDHW"):
        raise node.unsupported("attribute layout", layout, "NCHW or NCDHW")
    return sampled(node, node.text("method"), node.text("padding_mode"), node.flag("align_corners"), axis=1)


_COORDINATES = COORDINATES | {"tf_half_pixel_for_nn": lambda x, scaled, old, new: scaled(x + HALF)}

_EPSILON = np.float32(1e-5)
"""What TVM adds before rounding down, and takes away before rounding up, against errors of the coordinates."""
_ROUNDINGS: dict[str, Callable[[Array], Array]] = ROUNDINGS | {
    "floor": lambda x: np.floor(x + _EPSILON),
    "ceil": lambda x: np.ceil(x - _EPSILON),
}


def resize(node: TVMNode, sizes: Sequence[int], nearest: Callable[[Array], Array]) -> Symbol:
    """To sizes of the spatial axes: by method nearest_neighbor elements are taken, by linear and cubic interpolated.

    nearest: what the rounding method "round" does. No rounding named means the nearest place where corners are
    aligned, else down.
    """
    method, coordinates = node.text("method"), node.text("coordinate_transformation_mode")
    rounding = node.text("rounding_method") or ("round" if coordinates == "align_corners" else "floor")
    if method not in ("nearest_neighbor", "linear", "cubic"):
        raise node.unsupported("attribute method", method, "nearest_neighbor, linear or cubic")
    if coordinates not in _COORDINATES:
        raise node.unsupported("attribute coordinate_transformation_mode", coordinates, f"one of {[*_COORDINATES]}")
    roundings = _ROUNDINGS | {"round": nearest}
    if rounding not in roundings:
        raise node.unsupported("attribute rounding_method", rounding, f"one of {[*roundings]}")
    data = channels_first(node, "layout", len(sizes))
    if min(sizes, default=0) < 1:
        raise GraphError(f"{node.label}: size is {tuple(sizes)}; at least 1 is needed")
    check_size(node, tuple(sizes))
    places = _places(data, sizes, coordinates)
    if method == "nearest_neighbor":
        sources = {axis: roundings[rounding](x) for axis, x in places.items()}
        return in_layout(node, "layout", len(sizes), lambda suffix: resized(node, data, sources, suffix))
    kernel = cubic(node.number("cubic_alpha")) if method == "cubic" else LINEAR
    inside_only = method == "cubic" and bool(node.integer("cubic_exclude"))
    return _interpolated(node, data, places, kernel, inside_only)


def enlarged(node: TVMNode, data: Symbol, sizes: Sequence[int], aligns_corners: bool) -> Symbol:
    """An image (N, C, H, W) in other sizes by linear interpolation, in the layout of the node."""
    places = _places(data, sizes, "align_corners" if aligns_corners else "asymmetric")
    return _interpolated(node, data, places, LINEAR)


def _places(data: Symbol, sizes: Sequence[int], coordinates: str) -> dict[int, Array]:
    """Where each place of the result lies along each spatial axis of the data."""
    return {
        axis: _COORDINATES[coordinates](np.arange(new, dtype=np.float32), _scaling(old, new), old, new)
        for axis, (old, new) in enumerate(zip(data.shape[2:], sizes, strict=True), start=2)
    }


def _interpolated(
    node: TVMNode, data: Symbol, places: Mapping[int, Array], kernel: Kernel, inside_only: bool = False
) -> Symbol:
    matrices = {}
    for axis, x in places.items():
        node.made((len(x), data.shape[axis]))
        matrices[axis] = interpolation(x, data.shape[axis], kernel, inside_only=inside_only)
    return in_layout(node, "layout", len(places), lambda suffix: interpolated(node, data, matrices, suffix))


def _scaling(old: int, new: int) -> Callable[[Array], Array]:
    step = np.float32(old) / np.float32(new)
    return lambda lengths: lengths * step
