"""Deconvolution, which ONNX calls ConvTranspose, of one, two or three spatial axes."""

from __future__ import annotations

from collections.abc import Sequence

from mrt.errors import GraphError
from mrt.frontend.onnx.converters.windows import sizes_of, unless_default
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.slicing import sliced
from mrt.symbol import Symbol
from mrt.symbol.operators.deconvolution import Deconvolution


@converter("ConvTranspose")
def deconvolution(node: Node) -> Symbol:
    """Padding cuts as much off the end as off the beginning; where ONNX cuts less there, adj adds it again, and where
    it cuts more the rest is a slice.
    """
    data, weight = node.symbol(0), node.symbol(1)
    if data.type.rank not in (3, 4, 5) or weight.type.rank != data.type.rank:
        raise GraphError(f"{node.label}: data is {data.type}, weight {weight.type}; equal ranks of 3 to 5 are needed")
    kernel, spatial = weight.shape[2:], data.shape[2:]
    rank = len(spatial)
    stated = node.integers("kernel_shape")
    if stated is not None and stated != kernel:
        raise GraphError(f"{node.label}: attribute kernel_shape is {stated}, but the weight is {weight.type}")
    stride, dilation = sizes_of(node, "strides", rank), sizes_of(node, "dilations", rank)
    whole = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(spatial, stride, kernel, dilation, strict=True)]
    begins, shape = _border(node, spatial, stride, whole)
    ends = [total - 2 * begin for total, begin in zip(whole, begins, strict=True)]
    adj = tuple(max(n - end, 0) for n, end in zip(shape, ends, strict=True))
    parts = {2 + i: slice(0, n) for i, (n, end) in enumerate(zip(shape, ends, strict=True)) if n < end}
    groups = node.integer("group", 1)
    inputs = [data, weight, node.symbol(2)] if node.has(2) else [data, weight]
    operator = Deconvolution(
        kernel=kernel,
        num_filter=weight.shape[1] * groups,
        stride=unless_default(stride, 1),
        dilate=unless_default(dilation, 1),
        pad=unless_default(begins, 0),
        adj=unless_default(adj, 0),
        num_group=groups,
        no_bias=len(inputs) == 2,
    )
    return sliced(node, node.apply(operator, inputs, "whole" if parts else ""), parts)


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
        if min(cut) < 0:
            raise GraphError(f"{node.label}: the output shall be {shape}; the data reaches {tuple(whole)} only")
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
