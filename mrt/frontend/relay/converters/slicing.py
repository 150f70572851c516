"""Parts of a tensor and borders around it: strided_slice, split, take, pad."""

from __future__ import annotations

from dataclasses import replace

from mrt.errors import GraphError
from mrt.frontend.relay.node import Node, converter
from mrt.frontend.shared.node import Value
from mrt.frontend.shared.shaping import reshaped
from mrt.frontend.shared.slicing import padded, sliced, slices_of
from mrt.frontend.tvm import slicing
from mrt.symbol import Symbol


@converter("strided_slice")
def strided_slice(node: Node) -> Symbol:
    """Begins, ends and strides of the axes named, else of the first ones, as NumPy's.

    Strides that are not given are 1. With slice_mode "size" the ends are sizes, -1 up to the axis' end, and strides
    count nothing.
    """
    data, begins, ends = node.symbol(0), node.sizes("begin"), node.sizes("end")
    axes = tuple(range(len(begins))) if node.is_none("axes") else node.sizes("axes")
    strides = () if node.is_none("strides") else node.sizes("strides")
    mode = node.text("slice_mode")
    if mode == "size":
        sizes = [data.shape[node.axis(axis, data.type.rank)] for axis in axes]
        starts = [begin + n if begin < 0 else begin for begin, n in zip(begins, sizes, strict=False)]
        ends = tuple(n if end == -1 else begin + end for begin, end, n in zip(starts, ends, sizes, strict=False))
        begins, strides = tuple(starts), (1,) * len(begins)
    elif mode != "end":
        raise node.unsupported("attribute slice_mode", mode, "end or size")
    # The printer writes strides=[1] for strides that were not given.
    strides = strides[: len(begins)] + (1,) * (len(begins) - len(strides))
    return sliced(node, data, slices_of(node, data.type.rank, axes, begins, ends, strides))


@converter("slice_like")
def slice_like(node: Node) -> Symbol:
    """The first elements along each axis, as many as the second input has there; of the axes named, else of all."""
    data, like = node.symbol(0), node.shape(1)
    given = () if node.is_none("axes") else node.sizes("axes")
    axes = [node.axis(axis, data.type.rank) for axis in given] or range(data.type.rank)
    if max(axes, default=-1) >= len(like):
        raise GraphError(f"{node.label}: {data.type} is sliced like shape {like}, which lacks an axis")
    return sliced(node, data, {axis: slice(0, like[axis]) for axis in axes})


@converter("split")
def split(node: Node) -> Value:
    """A number of equal parts, or the places of the cuts."""
    given = node.attribute("indices_or_sections")
    if isinstance(given, list):
        return slicing.split(node, node.sizes("indices_or_sections"))
    parts, shape = node.integer("indices_or_sections"), node.shape(0)
    size = shape[node.axis(node.integer("axis"), len(shape))]
    if not 1 <= parts <= size or size % parts:
        raise GraphError(f"{node.label}: {size} elements in {parts} parts; a number that divides them is needed")
    return slicing.split(node, [size // parts * place for place in range(1, parts)])


@converter("take")
def take(node: Node) -> Symbol:
    """Along an axis, else of all elements in a row."""
    if node.integer("batch_dims"):
        raise node.unsupported("attribute batch_dims", node.integer("batch_dims"), "0")
    if node.is_none("axis"):
        data = node.symbol(0, "table")
        flat = reshaped(node, data, (data.type.size,), "flat")
        node = replace(node, inputs=(flat, *node.inputs[1:]), attributes={**node.attributes, "axis": 0})
    return slicing.take(node)


@converter("nn.pad")
def pad(node: Node) -> Symbol:
    """The second input is the value of the border."""
    return slicing.pad(node, _widths(node), lambda: node.known_number(1, "pad_value"))


@converter("nn.mirror_pad")
def mirror_pad(node: Node) -> Symbol:
    """Mode REFLECT leaves the edge out, SYMMETRIC, which is not covered, repeats it."""
    if node.text("mode") != "REFLECT":
        raise node.unsupported("attribute mode", node.text("mode"), "REFLECT")
    return padded(node, _widths(node), "reflect", 0.0)


def _widths(node: Node) -> list[int]:
    pairs = node.attribute("pad_width")
    if isinstance(pairs, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        widths = [width for pair in pairs if isinstance(pair, list) for width in pair]
        whole = [width for width in widths if isinstance(width, int) and not isinstance(width, bool)]
        if len(whole) == len(widths) == 2 * len(node.shape(0)):
            return whole
    raise GraphError(f"{node.label}: attribute pad_width needs two integers for each of {len(node.shape(0))} axes")
