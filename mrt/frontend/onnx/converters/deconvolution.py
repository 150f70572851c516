"""Deconvolution, which ONNX calls ConvTranspose, of one, two or three spatial axes, and Col2Im, which is one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mrt.errors import GraphError
from mrt.frontend.onnx.converters.windows import sizes_of
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shared.columns import laying, window_counts
from mrt.frontend.shared.deconvolution import deconvolved, reach
from mrt.frontend.shared.shaping import reshaped
from mrt.symbol import Symbol


@converter("ConvTranspose")
def deconvolution(node: Node) -> Symbol:
    """Each end of an axis is cut by the padding that the attributes state or that the output's shape leaves."""
    data, weight = node.symbol(0), node.symbol(1)
    if data.type.rank not in (3, 4, 5) or weight.type.rank != data.type.rank:
        raise GraphError(f"{node.label}: data is {data.type}, weight {weight.type}; equal ranks of 3 to 5 are needed")
    kernel, spatial = weight.shape[2:], data.shape[2:]
    rank = len(spatial)
    stated = node.integers("kernel_shape")
    if stated is not None and stated != kernel:
        raise GraphError(f"{node.label}: attribute kernel_shape is {stated}, but the weight is {weight.type}")
    stride, dilation = sizes_of(node, "strides", rank), sizes_of(node, "dilations", rank)
    begins, shape = _border(node, spatial, stride, reach(spatial, kernel, stride, dilation))
    inputs = [data, weight, node.symbol(2)] if node.has(2) else [data, weight]
    return deconvolved(node, inputs, stride, dilation, node.integer("group", 1), begins, shape)


def _border(
    node: Node, spatial: Sequence[int], stride: Sequence[int], whole: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """How many positions are cut off at the beginning of each axis, and how many are left.

    whole: how far the taps reach along each axis. A stated output_shape, or one of auto_pad, decides the pads.
    """
    rank = len(spatial)
    added = node.integers("output_padding") or (0,) * rank
    if len(added) != rank or min(added) < 0:
        raise GraphError(f"{node.label}: attribute output_padding is {added}; {rank} entries of 0 or more are needed")
    mode = node.text("auto_pad", "NOTSET")
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise node.unsupported("attribute auto_pad", mode, "NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    shape = node.integers("output_shape")
    if shape is None and mode.startswith("SAME"):
        shape = tuple(n * s for n, s in zip(spatial, stride, strict=True))
    if shape is not None:
        if len(shape) not in (rank, rank + 2) or min(shape) < 1:
            raise GraphError(f"{node.label}: attribute output_shape is {shape}; {rank} positive sizes are needed")
        shape = shape[-rank:]
        cut = [total + more - n for total, more, n in zip(whole, added, shape, strict=True)]
        if any(n <= -step for n, step in zip(cut, stride, strict=True)):
            raise GraphError(f"{node.label}: the output shall be {shape}; the data reaches {tuple(whole)} only")
        # What no tap reaches, less than a stride past the end, holds the bias alone.
        cut = [max(n, 0) for n in cut]
        return tuple(n // 2 if mode == "SAME_UPPER" else n - n // 2 for n in cut), shape
    pads = (node.integers("pads") if mode == "NOTSET" else None) or (0,) * (2 * rank)
    if len(pads) != 2 * rank:
        raise GraphError(f"{node.label}: attribute pads is {pads}; {2 * rank} entries are needed")
    if min(pads) < 0:
        raise node.unsupported("attribute pads", pads, "no negative entry")
    left = [n + more - begin - end for n, more, begin, end in zip(whole, added, pads[:rank], pads[rank:], strict=True)]
    if min(left) < 1:
        raise GraphError(f"{node.label}: pads {pads} leave the positions {tuple(left)}; one at least is needed")
    return pads[:rank], tuple(left)


@converter("Col2Im")
def windows_joined(node: Node) -> Symbol:
    """The sum of windows laid where they lie in the image: a Deconvolution by ones, a group for each channel."""
    data, image, window = node.symbol(0), node.known_integers(1, "image_shape"), node.known_integers(2, "block_shape")
    rank = len(image)
    stride, dilation = sizes_of(node, "strides", rank), sizes_of(node, "dilations", rank)
    pads = node.integers("pads") or (0,) * (2 * rank)
    if len(window) != rank or len(pads) != 2 * rank or min((*window, *image), default=0) < 1:
        raise GraphError(f"{node.label}: windows {window} with pads {pads} do not fit an image {image}")
    both = [begin + end for begin, end in zip(pads[:rank], pads[rank:], strict=True)]
    counts = window_counts(node.label, data.shape, image, window, stride, dilation, both)
    size = math.prod(window)
    channels = data.shape[1] // size
    node.made((channels * size, size))
    apart = reshaped(node, data, (*data.shape[:2], *counts), "apart")
    weight = node.parameter(laying(channels, window), "weight")
    return deconvolved(node, [apart, weight], stride, dilation, channels, pads[:rank], image)
