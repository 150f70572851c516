"""Parts of a tensor and borders around it: Slice, Split, Gather, Pad."""

from __future__ import annotations

import math

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shared.resizing import resized
from mrt.frontend.shared.slicing import sliced, slices_of, taken
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.transform import SliceAxis, Take


@converter("Slice")
def slice_(node: Node) -> Symbol:
    """Starts, ends, axes and steps as NumPy's, open ends included; attributes before opset 10, then inputs."""
    data = node.symbol(0)
    if node.opset < 10:
        starts, ends, axes, steps = (*(node.integers(name) for name in ("starts", "ends", "axes")), None)
    else:
        roles = ("starts", "ends", "axes", "steps")
        starts, ends, axes, steps = (node.given_integers(i, role) for i, role in enumerate(roles, start=1))
    if starts is None or ends is None:
        raise GraphError(f"{node.label}: starts or ends are not given; both are needed")
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    parts = slices_of(node, data.type.rank, axes, starts, ends, steps)
    return sliced(node, data, {axis: _opened(part, data.shape[axis]) for axis, part in parts.items()})


def _opened(part: slice, size: int) -> slice:
    """An end at or past the axis's own, by which ONNX says "all the rest", left open; a step on one element is none."""
    if part.step < 0:
        return part
    return slice(part.start, None if part.stop >= size else part.stop, part.step if size > 1 else 1)


@converter("Split")
def split(node: Node) -> tuple[Symbol, ...]:
    """One slice for each output. Sizes are stated, or equal; the last is smaller where num_outputs does not divide."""
    data, count = node.symbol(0), len(node.proto.output)
    axis = node.axis(node.integer("axis", 0), data.type.rank)
    sizes = node.integers("split") if node.opset < 13 else node.given_integers(1, "split")
    total = data.shape[axis]
    if sizes is None:
        chunk = -(-total // count)
        sizes = (*(chunk,) * (count - 1), total - chunk * (count - 1))
    if len(sizes) != count or sum(sizes) != total or min(sizes) < 1:
        raise GraphError(f"{node.label}: splits {total} elements on axis {axis} into {sizes} for {count} outputs")
    ends = np.cumsum(sizes).tolist()
    return tuple(
        node.apply(SliceAxis(axis=axis, begin=end - size, end=end if end < total else None), [data], output=index)
        if name and size < total
        else data
        for index, (name, size, end) in enumerate(zip(node.proto.output, sizes, ends, strict=True))
    )


@converter("Gather")
def gather(node: Node) -> Symbol:
    """Elements along an axis, at constant indices or computed ones; negative ones count from the end."""
    data, axis = node.symbol(0), node.axis(node.integer("axis", 0), len(node.shape(0)))
    size = data.shape[axis]
    if not node.is_known(1):
        return node.apply(Take(axis=axis, mode="wrap"), [data, node.symbol(1)])
    return taken(node, data, axis, _indices(node, size), f"below_{size}")


def _indices(node: Node, size: int) -> Array:
    """The constant indices counted from the front."""
    indices = node.known(1, "indices")
    if indices.dtype.kind not in "iu" or (indices.size and (indices.min() < -size or indices.max() >= size)):
        raise GraphError(f"{node.label}: indices are no integers in [{-size}, {size})")
    return np.asarray(np.where(indices < 0, indices + size, indices))


_PAD_MODES = ("constant", "edge", "reflect", "wrap")


@converter("Pad")
def pad(node: Node) -> Symbol:
    """Begins then ends, of all axes or from opset 18 on of those named; negative ones take elements away."""
    data, mode = node.symbol(0), node.text("mode", "constant")
    if mode not in _PAD_MODES:
        raise node.unsupported("attribute mode", mode, "constant, edge, reflect or wrap")
    begins, ends = _pad_widths(node, data.type.rank)
    crop = {
        axis: slice(max(-begin, 0), min(end, 0) or None)
        for axis, (begin, end) in enumerate(zip(begins, ends, strict=True))
        if begin < 0 or end < 0
    }
    widths = [max(width, 0) for pair in zip(begins, ends, strict=True) for width in pair]
    if crop:
        data = sliced(node, data, crop, "cropped" if any(widths) else "")
    if not any(widths):
        return data
    if mode == "wrap":
        return _wrapped(node, data, list(zip(widths[::2], widths[1::2], strict=True)))
    value = node.number("value", 0.0) if node.opset < 11 else node.given_number(2, "constant_value") or 0.0
    fill = value if mode == "constant" else 0.0
    if not math.isfinite(fill):
        raise node.unsupported("the constant value", fill, "a finite number")
    return node.apply(Pad(pad_width=tuple(widths), mode=mode, constant_value=fill), [data])


def _wrapped(node: Node, data: Symbol, widths: list[tuple[int, int]]) -> Symbol:
    """The elements from the other end of each axis before and after it."""
    sources = {}
    for axis, (before, after) in enumerate(widths):
        length = data.shape[axis]
        node.made((before + length + after,))
        sources[axis] = np.arange(-before, length + after) % length
    return resized(node, data, sources)


def _pad_widths(node: Node, rank: int) -> tuple[list[int], list[int]]:
    """Widths before and after every axis."""
    pads = node.integers("pads") if node.opset < 11 else node.given_integers(1, "pads")
    axes = node.given_integers(3, "axes") if node.opset >= 18 else None
    places = range(rank) if axes is None else [node.axis(axis, rank) for axis in axes]
    if pads is None or len(pads) != 2 * len(places):
        raise GraphError(f"{node.label}: pads are {pads}; {2 * len(places)} entries are needed")
    begins, ends = [0] * rank, [0] * rank
    for index, axis in enumerate(places):
        begins[axis], ends[axis] = pads[index], pads[index + len(places)]
    return begins, ends
