"""Parts of a tensor and borders around it: slices, splits, PAD."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import tflite

from mrt.errors import GraphError
from mrt.frontend.shared.node import Value
from mrt.frontend.shared.resizing import resized
from mrt.frontend.shared.slicing import Index, indexed, padded, sliced
from mrt.frontend.tflite.files import names_of
from mrt.frontend.tflite.node import Node, converter
from mrt.symbol import Symbol


@converter("SLICE")
def slice_(node: Node) -> Symbol:
    """A begin and a size for each axis; size -1 means all the rest."""
    data = node.symbol(0)
    begins, sizes = node.known_integers(1, "begin"), node.known_integers(2, "size")
    if not len(begins) == len(sizes) == data.type.rank or min(begins, default=0) < 0 or min(sizes, default=0) < -1:
        raise GraphError(f"{node.label}: begin {begins} and size {sizes} do not fit {data.type}")
    ends = tuple(
        whole if size == -1 else begin + size for begin, size, whole in zip(begins, sizes, data.shape, strict=True)
    )
    if any(end > whole for end, whole in zip(ends, data.shape, strict=True)):
        raise GraphError(f"{node.label}: begin {begins} and size {sizes} reach beyond {data.type}")
    parts = {axis: slice(begin, end) for axis, (begin, end) in enumerate(zip(begins, ends, strict=True))}
    return sliced(node, data, parts)


@converter("STRIDED_SLICE")
def strided_slice(node: Node) -> Symbol:
    """NumPy's data[begin:end:stride, ...], the masks saying of which entries that is not so. Entry i is, with bit i of

    1. EllipsisMask: as many whole axes as are left. 2. NewAxisMask: a new axis. 3. ShrinkAxisMask: the one element at
    begin, without its axis. 4. BeginMask, EndMask: open at that end.
    """
    options = node.options("StridedSliceOptions")
    begins, ends, strides = (
        node.known_integers(index, role) for index, role in enumerate(("begin", "end", "strides"), start=1)
    )
    if not len(begins) == len(ends) == len(strides) or 0 in strides:
        raise GraphError(
            f"{node.label}: begin {begins}, end {ends}, strides {strides}; equal lengths and no stride of 0 are needed"
        )
    if options.flag("Offset"):
        ends = tuple(begin + end for begin, end in zip(begins, ends, strict=True))
    masks = {name: options.integer(f"{name}Mask") for name in ("Ellipsis", "NewAxis", "ShrinkAxis", "Begin", "End")}

    def entry(place: int) -> Index:
        is_set = {name: bool(mask >> place & 1) for name, mask in masks.items()}
        if is_set["Ellipsis"]:
            return ...
        if is_set["NewAxis"]:
            return None
        if is_set["ShrinkAxis"]:
            return begins[place]
        begin = None if is_set["Begin"] else begins[place]
        return slice(begin, None if is_set["End"] else ends[place], strides[place])

    return indexed(node, node.symbol(0), [entry(place) for place in range(len(begins))])


@converter("SPLIT")
def split(node: Node) -> Value:
    """Equal parts along an axis, which is the first input."""
    parts, size = len(node.outputs), node.symbol(1).shape[node.known_axis(0, len(node.shape(1)))]
    if size % parts:
        raise GraphError(f"{node.label}: {parts} equal parts of an axis of size {size} are asked for")
    return _split(node, 1, 0, (size // parts,) * parts)


@converter("SPLIT_V")
def split_by_sizes(node: Node) -> Value:
    """Parts of stated sizes, of which one may be -1, which takes what is left."""
    sizes = node.known_integers(1, "sizes")
    whole = node.shape(0)[node.known_axis(2, len(node.shape(0)))]
    rest = whole - sum(size for size in sizes if size != -1)
    sizes = tuple(rest if size == -1 else size for size in sizes)
    if len(sizes) != len(node.outputs) or sum(sizes) != whole or min(sizes) < 1:
        raise GraphError(
            f"{node.label}: parts of sizes {sizes} for {len(node.outputs)} outputs of an axis of size {whole}"
        )
    return _split(node, 0, 2, sizes)


def _split(node: Node, index: int, axis_index: int, sizes: Sequence[int]) -> tuple[Symbol, ...]:
    data = node.symbol(index)
    axis = node.known_axis(axis_index, data.type.rank)
    return tuple(
        sliced(node, data, {axis: slice(end - size, end)}, str(place))
        for place, (size, end) in enumerate(zip(sizes, accumulate(sizes), strict=True))
    )


@converter("UNPACK")
def unpack(node: Node) -> Value:
    """The elements along an axis, which goes."""
    data = node.symbol(0)
    axis = node.axis(node.options("UnpackOptions").integer("Axis"), data.type.rank)
    if data.shape[axis] != len(node.outputs):
        raise GraphError(f"{node.label}: {len(node.outputs)} outputs for an axis of size {data.shape[axis]}")
    whole = [slice(None)] * axis
    return tuple(indexed(node, data, [*whole, place], str(place)) for place in range(len(node.outputs)))


@converter("REVERSE_V2")
def reverse(node: Node) -> Symbol:
    data = node.symbol(0)
    axes = {node.axis(axis, data.type.rank) for axis in node.known_integers(1, "axes")}
    return sliced(node, data, {axis: slice(None, None, -1) for axis in axes if data.shape[axis] > 1})


@converter("PAD", "PADV2")
def pad(node: Node) -> Symbol:
    """Widths before and after each axis, as rows; PADV2 says what stands in the border."""
    return padded(node, _widths(node), "constant", node.known_number(2, "value") if node.has(2) else 0.0)


_MIRRORS = names_of(tflite.MirrorPadMode)


@converter("MIRROR_PAD")
def mirror_pad(node: Node) -> Symbol:
    """Mode REFLECT leaves the edge out, SYMMETRIC repeats it, which takes elements by index."""
    data, widths = node.symbol(0), _widths(node)
    mode = _MIRRORS.get(node.options("MirrorPadOptions").integer("Mode"), "unknown")
    least = 1 if mode == "REFLECT" else 0
    pairs = dict(enumerate(zip(widths[::2], widths[1::2], strict=True)))
    if any(min(pair) < 0 or max(pair) > data.shape[axis] - least for axis, pair in pairs.items()):
        raise GraphError(f"{node.label}: paddings {widths} do not fit {data.type} in mode {mode}")
    if mode == "REFLECT":
        return padded(node, widths, "reflect", 0.0)
    if mode != "SYMMETRIC":
        raise node.unsupported("Mode", mode, "REFLECT or SYMMETRIC")
    sources = {
        axis: np.pad(np.arange(data.shape[axis]), pair, mode="symmetric")
        for axis, pair in pairs.items()
        if any(pair) and node.places(data.shape[axis] + sum(pair))
    }
    return resized(node, data, sources)


def _widths(node: Node) -> tuple[int, ...]:
    shape, rank = node.shape(1), len(node.shape(0))
    if shape != (rank, 2):
        raise GraphError(f"{node.label}: paddings have shape {shape}; ({rank}, 2) is needed")
    return node.known_integers(1, "paddings")
