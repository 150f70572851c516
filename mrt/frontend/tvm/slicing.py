"""Parts of a tensor and borders around it: split, take, pad."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.node import Value
from mrt.frontend.shared.slicing import padded, sliced, taken
from mrt.frontend.tvm.node import TVMNode
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.transform import Take


def split(node: TVMNode, cuts: Sequence[int]) -> Value:
    """One slice for each part between the places of the cuts."""
    data = node.symbol(0)
    axis = node.axis(node.integer("axis"), data.type.rank)
    size = data.shape[axis]
    edges = [0, *(min(cut, size) for cut in cuts), size]
    return tuple(
        sliced(node, data, {axis: slice(begin, end)}, str(place)) for place, (begin, end) in enumerate(pairwise(edges))
    )


def take(node: TVMNode) -> Symbol:
    """Elements along an axis, at constant indices or computed ones."""
    data, mode = node.symbol(0, "table"), node.text("mode")
    given = node.optional_integer("axis")
    if given is None and data.type.rank != 1:
        raise node.unsupported("attribute axis", f"not given for {data.type}", "an axis")
    axis = node.axis(given or 0, data.type.rank)
    if node.array(1) is None:
        if mode not in ("fast", "clip", "wrap"):
            raise node.unsupported("attribute mode", mode, "fast, clip or wrap, where indices are computed,")
        return node.apply(Take(axis=axis, mode="wrap" if mode == "wrap" else "clip"), [data, node.symbol(1)])
    size = data.shape[axis]
    return taken(node, data, axis, _indices(node, size, mode), f"{mode}_{size}")


def _indices(node: TVMNode, size: int, mode: str) -> Array:
    """The constant indices, brought into the axis as the mode says."""
    indices = node.known(1, "indices")
    if mode == "clip":
        return np.asarray(np.clip(indices, 0, size - 1))
    if mode == "wrap":
        return np.asarray(indices % size)
    if indices.size and (indices.min() < 0 or indices.max() >= size):
        raise GraphError(f"{node.label}: indices in [{indices.min()}, {indices.max()}] on an axis of size {size}")
    return indices


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "edge": "edge"}
"""MXNet's word for the modes of Relax (replicate) and Relay (edge)."""


def pad(node: TVMNode, widths: Sequence[int], value: Callable[[], float]) -> Symbol:
    """Widths before and after each axis; `value` gives that of the border where the mode is constant."""
    mode = node.text("pad_mode")
    if mode not in _PAD_MODES:
        raise node.unsupported("attribute pad_mode", mode, f"one of {[*_PAD_MODES]}")
    return padded(node, widths, _PAD_MODES[mode], value() if mode == "constant" else 0.0)
