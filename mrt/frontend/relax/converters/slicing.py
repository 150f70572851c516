"""Parts of a tensor and borders around it: strided_slice, split, take, pad."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.node import Value
from mrt.frontend.relax.node import Node, converter
from mrt.frontend.slicing import sliced, slices_of, taken
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.transform import Take


@converter("strided_slice")
def strided_slice(node: Node) -> Symbol:
    """Begins, ends and strides of the named axes, as NumPy's; strides of 1 where none are given."""
    axes, begins, ends = (node.known_integers(i, role) for i, role in enumerate(("axes", "begin", "end"), start=1))
    strides = node.known_integers(4, "strides") if len(node.inputs) > 4 else (1,) * len(axes)
    data = node.symbol(0)
    return sliced(node, data, slices_of(node, data.type.rank, axes, begins, ends, strides))


@converter("dynamic_strided_slice")
def dynamic_strided_slice(node: Node) -> Symbol:
    """Begins, ends and strides of all axes."""
    begins, ends, strides = (
        node.known_integers(i, role) for i, role in enumerate(("begin", "end", "strides"), start=1)
    )
    data = node.symbol(0)
    return sliced(node, data, slices_of(node, data.type.rank, tuple(range(len(begins))), begins, ends, strides))


@converter("split")
def split(node: Node) -> Value:
    """One slice for each part. A number of parts gives equal ones, the last smaller; else the places of the cuts."""
    data = node.symbol(0)
    axis = node.axis(node.integer("axis"), data.type.rank)
    size, given = data.shape[axis], node.call.attrs.indices_or_sections
    try:
        cuts = [int(cut) for cut in given]
    except TypeError:
        chunk = -(-size // int(given))
        cuts = [chunk * place for place in range(1, int(given))]
    edges = [0, *(min(cut, size) for cut in cuts), size]
    return tuple(
        sliced(node, data, {axis: slice(begin, end)}, str(place)) for place, (begin, end) in enumerate(pairwise(edges))
    )


@converter("take")
def take(node: Node) -> Symbol:
    """Elements along an axis, at constant indices or computed ones."""
    data, mode = node.symbol(0, "table"), node.text("mode")
    given = node.call.attrs.axis
    if given is None and data.type.rank != 1:
        raise node.unsupported("attribute axis", f"not given for {data.type}", "an axis")
    axis = node.axis(int(given or 0), data.type.rank)
    if node.array(1) is None:
        if mode not in ("fast", "clip"):
            raise node.unsupported("attribute mode", mode, "fast or clip, where indices are computed,")
        return node.apply(Take(axis=axis), [data, node.symbol(1)])
    size = data.shape[axis]
    return taken(node, data, axis, _indices(node, size, mode), f"{mode}_{size}")


def _indices(node: Node, size: int, mode: str) -> Array:
    """The constant indices, brought into the axis as the mode says."""
    indices = node.known(1, "indices")
    if mode == "clip":
        return np.asarray(np.clip(indices, 0, size - 1))
    if mode == "wrap":
        return np.asarray(indices % size)
    if indices.size and (indices.min() < 0 or indices.max() >= size):
        raise GraphError(f"{node.label}: indices in [{indices.min()}, {indices.max()}] on an axis of size {size}")
    return indices


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}


@converter("nn.pad")
def pad(node: Node) -> Symbol:
    """Widths before and after each axis."""
    data, mode, widths = node.symbol(0), node.text("pad_mode"), node.sizes("pad_width")
    if mode not in _PAD_MODES:
        raise node.unsupported("attribute pad_mode", mode, "constant, reflect or replicate")
    if min(widths, default=0) < 0:
        raise node.unsupported("attribute pad_width", widths, "no negative entry")
    if not any(widths):
        return data
    value = node.number("pad_value") if mode == "constant" else 0.0
    if not np.isfinite(value):
        raise node.unsupported("attribute pad_value", value, "a finite number")
    return node.apply(Pad(pad_width=widths, mode=_PAD_MODES[mode], constant_value=value), [data])
