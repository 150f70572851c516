"""Parts of a tensor and borders around it: StridedSlice, Slice, Split, Gather, Pad."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.openvino.node import Node, converter
from mrt.frontend.shared.node import Value
from mrt.frontend.shared.resizing import resized
from mrt.frontend.shared.slicing import Index, indexed, sliced, slices_of, taken
from mrt.symbol import Symbol
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.transform import Take


@converter("StridedSlice")
def strided_slice(node: Node) -> Symbol:
    """NumPy's basic index: a mask says of which entries the begin or end is open, and which are new axes, single
    elements or an ellipsis.
    """
    begins, ends = node.known_integers(1, "begin"), node.known_integers(2, "end")
    steps = node.known_integers(3, "strides") if node.has(3) else (1,) * len(begins)
    if not len(begins) == len(ends) == len(steps) or 0 in steps:
        raise GraphError(
            f"{node.label}: begins {begins}, ends {ends}, steps {steps}; equal lengths and no step of 0 are needed"
        )
    open_begin, open_end, new, single, rest = (
        _mask(node, name, len(begins))
        for name in ("begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask", "ellipsis_mask")
    )
    index: list[Index] = []
    for place, (begin, end, step) in enumerate(zip(begins, ends, steps, strict=True)):
        if rest[place]:
            index.append(...)
        elif new[place]:
            index.append(None)
        elif single[place]:
            index.append(0 if open_begin[place] else begin)
        else:
            index.append(slice(None if open_begin[place] else begin, None if open_end[place] else end, step))
    return indexed(node, node.symbol(0), index)


def _mask(node: Node, name: str, count: int) -> tuple[bool, ...]:
    """One truth value for each entry; those that are not given are false."""
    given = node.integers(name, ())[:count]
    return (*map(bool, given), *(False,) * (count - len(given)))


@converter("Slice")
def slice_(node: Node) -> Symbol:
    data = node.symbol(0)
    starts, stops, steps = (node.known_integers(i, role) for i, role in enumerate(("start", "stop", "step"), start=1))
    axes = node.known_integers(4, "axes") if node.has(4) else tuple(range(len(starts)))
    return sliced(node, data, slices_of(node, data.type.rank, axes, starts, stops, steps))


@converter("Split")
def split(node: Node) -> Value:
    """Equal parts."""
    count, axis = node.integer("num_splits"), node.known_axis(1, len(node.shape(0)))
    whole = node.shape(0)[axis]
    if count < 1 or whole % count:
        raise GraphError(f"{node.label}: {count} parts of an axis of size {whole}; equal ones are needed")
    return _parts(node, axis, [whole // count] * count)


@converter("VariadicSplit")
def variadic_split(node: Node) -> Value:
    """Parts of stated sizes; one may be -1, which is what the others leave."""
    sizes, axis = list(node.known_integers(2, "split_lengths")), node.known_axis(1, len(node.shape(0)))
    whole = node.shape(0)[axis]
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = whole - sum(sizes) - 1
    if sum(sizes) != whole or min(sizes, default=0) < 1:
        raise GraphError(f"{node.label}: parts of sizes {sizes} of an axis of size {whole}")
    return _parts(node, axis, sizes)


def _parts(node: Node, axis: int, sizes: Sequence[int]) -> tuple[Symbol, ...]:
    data = node.symbol(0)
    return tuple(
        sliced(node, data, {axis: slice(end - size, end)}, str(place))
        for place, (size, end) in enumerate(zip(sizes, accumulate(sizes), strict=True))
    )


@converter("Gather")
def gather(node: Node) -> Symbol:
    """Elements along an axis, at constant indices or computed ones; negative ones count from the end."""
    data = node.symbol(0, "table")
    axis, batch_axes = node.known_axis(2, data.type.rank), node.integer("batch_dims", 0)
    if batch_axes:
        raise node.unsupported("attribute batch_dims", batch_axes, "0")
    size = data.shape[axis]
    if not node.is_known(1):
        return node.apply(Take(axis=axis, mode="wrap"), [data, node.symbol(1, "indices")])
    indices = node.known(1, "indices")
    if indices.dtype.kind not in "iu" or (indices.size and (indices.min() < -size or indices.max() >= size)):
        raise GraphError(f"{node.label}: indices are no integers in [{-size}, {size})")
    return taken(node, data, axis, np.asarray(np.where(indices < 0, indices + size, indices)), f"below_{size}")


@converter("Pad")
def pad(node: Node) -> Symbol:
    """Widths before and after each axis; negative ones take elements away. Mode symmetric repeats the edge, which takes
    elements by index.
    """
    data, mode = node.symbol(0), node.text("pad_mode", "constant").lower()
    begins, ends = node.known_integers(1, "pads_begin"), node.known_integers(2, "pads_end")
    rank = data.type.rank
    if len(begins) != rank or len(ends) != rank:
        raise GraphError(f"{node.label}: pads {begins} and {ends} for {data.type}; one for each axis is needed")
    pairs = dict(enumerate(zip(begins, ends, strict=True)))
    crop = {axis: slice(max(-b, 0), min(e, 0) or None) for axis, (b, e) in pairs.items() if min(b, e) < 0}
    if crop and mode != "constant":
        raise node.unsupported("pads", f"negative in mode {mode}", "no negative entry")
    widths = [max(width, 0) for pair in pairs.values() for width in pair]
    if crop:
        data = sliced(node, data, crop, "cropped" if any(widths) else "")
    if not any(widths):
        return data
    if mode == "symmetric":
        return _mirrored(node, data, pairs)
    if mode not in ("constant", "edge", "reflect"):
        raise node.unsupported("attribute pad_mode", mode, "constant, edge, reflect or symmetric")
    fill = node.known_number(3, "pad_value") if node.has(3) and mode == "constant" else 0.0
    if not math.isfinite(fill):
        raise node.unsupported("the border's value", fill, "a finite number")
    return node.apply(Pad(pad_width=tuple(widths), mode=mode, constant_value=fill), [data])


def _mirrored(node: Node, data: Symbol, pairs: dict[int, tuple[int, int]]) -> Symbol:
    sources = {}
    for axis, pair in pairs.items():
        length = data.shape[axis]
        if max(pair) > length:
            raise GraphError(f"{node.label}: pads {pair} of axis {axis} exceed {data.type} in mode symmetric")
        if any(pair):
            node.made((length + sum(pair),))
            sources[axis] = np.pad(np.arange(length), pair, mode="symmetric")
    return resized(node, data, sources)
