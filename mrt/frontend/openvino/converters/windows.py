"""Operators with sliding windows: convolution, its transpose and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mrt.errors import GraphError
from mrt.frontend.openvino.node import Node, converter
from mrt.frontend.shared.deconvolution import deconvolved, reach
from mrt.frontend.shared.shaping import reshaped
from mrt.frontend.shared.windows import Windows, convolved, pooled_over, same_pads, spans
from mrt.symbol import Symbol

_SAME = {"same_upper": True, "same_lower": False}


@converter("Convolution")
def convolution(node: Node) -> Symbol:
    """The weight is (outputs, inputs, *kernel)."""
    return _convolved(node, node.symbol(1, "weight"), 1)


@converter("GroupConvolution")
def group_convolution(node: Node) -> Symbol:
    """The weight is (groups, outputs of a group, inputs of a group, *kernel)."""
    shape = _grouped_shape(node)
    return _convolved(node, _merged_groups(node, (shape[0] * shape[1], *shape[2:])), shape[0])


def _convolved(node: Node, weight: Symbol, groups: int) -> Symbol:
    data = node.symbol(0)
    if data.type.rank not in (3, 4, 5) or weight.type.rank != data.type.rank:
        raise GraphError(f"{node.label}: data is {data.type}, weight {weight.type}; equal ranks of 3 to 5 are needed")
    return convolved(node, [data, weight], _windows(node, data.shape[2:], weight.shape[2:]), groups)


def _grouped_shape(node: Node) -> tuple[int, ...]:
    """The shape of a weight whose first axis counts groups."""
    shape = node.shape(1)
    if len(shape) != len(node.shape(0)) + 1:
        raise GraphError(f"{node.label}: the weight has shape {shape}, data {node.shape(0)}; one axis more is needed")
    return shape


def _merged_groups(node: Node, shape: tuple[int, ...]) -> Symbol:
    """The weight with the axis of groups merged into another one, at once where it is known."""
    if not node.is_known(1):
        return reshaped(node, node.symbol(1), shape, "weight")
    return node.parameter_of(1, "weight", "merged", lambda array: array.reshape(shape))


@converter("ConvolutionBackpropData")
def deconvolution(node: Node) -> Symbol:
    """The weight is (inputs, outputs, *kernel)."""
    return _deconvolved(node, node.symbol(1, "weight"), 1)


@converter("GroupConvolutionBackpropData")
def group_deconvolution(node: Node) -> Symbol:
    """The weight is (groups, inputs of a group, outputs of a group, *kernel)."""
    shape = _grouped_shape(node)
    return _deconvolved(node, _merged_groups(node, (shape[0] * shape[1], *shape[2:])), shape[0])


def _deconvolved(node: Node, weight: Symbol, groups: int) -> Symbol:
    """The padding cuts each end of an axis, output_padding adds at its end; a stated output shape decides what is cut
    where auto_pad leaves that open.
    """
    data = node.symbol(0)
    if data.type.rank not in (3, 4, 5) or weight.type.rank != data.type.rank:
        raise GraphError(f"{node.label}: data is {data.type}, weight {weight.type}; equal ranks of 3 to 5 are needed")
    rank = data.type.rank - 2
    stride, dilation = _sizes(node, "strides", rank), _sizes(node, "dilations", rank)
    whole = reach(data.shape[2:], weight.shape[2:], stride, dilation)
    added = node.integers("output_padding", (0,) * rank) or (0,) * rank
    mode = node.text("auto_pad", "explicit")
    begins, ends = _stated_pads(node, rank) if mode == "explicit" else ((0,) * rank, (0,) * rank)
    if node.has(2):
        shape = node.known_integers(2, "output_shape")
        if len(shape) != rank or min(shape) < 1:
            raise GraphError(f"{node.label}: output_shape is {shape}; {rank} positive sizes are needed")
        if mode in _SAME:
            cut = [max(n + more - size, 0) for n, more, size in zip(whole, added, shape, strict=True)]
            # The larger half of an odd number is cut before the data: the other side than a convolution pads.
            begins = tuple(n - n // 2 if _SAME[mode] else n // 2 for n in cut)
    elif mode in _SAME:
        raise node.unsupported("the output shape", "left to auto_pad", "explicit pads, or an output shape")
    else:
        lengths = zip(whole, added, begins, ends, strict=True)
        shape = tuple(n + more - begin - end for n, more, begin, end in lengths)
    return deconvolved(node, [data, weight], stride, dilation, groups, begins, shape)


@converter("MaxPool", "AvgPool")
def pooling(node: Node) -> Symbol:
    """rounding_type ceil keeps a last window that starts in the end padding, ceil_torch drops it.

    An average that counts padding counts all places of a window, also those past the end padding; where there is no
    padding none is counted.
    """
    data, kind = node.symbol(0), "max" if node.operator == "MaxPool" else "avg"
    kernel = node.integers("kernel")
    if data.type.rank not in (3, 4, 5) or len(kernel) != data.type.rank - 2:
        raise GraphError(f"{node.label}: kernel {kernel} on {data.type}; a size for each of 1 to 3 axes is needed")
    windows, spatial = _windows(node, data.shape[2:], kernel), data.shape[2:]
    rounding = node.text("rounding_type", "floor")
    if rounding not in ("floor", "ceil", "ceil_torch"):
        raise node.unsupported("attribute rounding_type", rounding, "floor, ceil or ceil_torch")
    is_padded = any((*windows.begins, *windows.ends))
    counts_padding = kind == "max" or (is_padded and not node.flag("exclude-pad"))
    if rounding == "ceil_torch" and not (kind == "avg" and counts_padding):
        return pooled_over(node, data, windows, kind, True, counts_padding)
    if rounding != "floor":
        windows = _reaching(windows, spatial, keeps_last=rounding == "ceil")
    return pooled_over(node, data, windows, kind, False, counts_padding)


def _reaching(windows: Windows, spatial: Sequence[int], keeps_last: bool) -> Windows:
    """The windows with as much end padding as the last one reaches over, their number rounded up.

    keeps_last: one that starts in the end padding counts.
    """
    ends = []
    for n, begin, end, span, step in zip(
        spatial, windows.begins, windows.ends, windows.spans, windows.stride, strict=True
    ):
        last = -(-(n + begin + end - span) // step) * step
        if not keeps_last and last >= n + begin:
            last -= step
        ends.append(max(last + span - n - begin, end if keeps_last else 0))
    return replace(windows, ends=tuple(ends))


def _windows(node: Node, spatial: Sequence[int], kernel: Sequence[int]) -> Windows:
    rank = len(spatial)
    if min(kernel) < 1:
        raise GraphError(f"{node.label}: kernel is {tuple(kernel)}; sizes of at least 1 are needed")
    stride, dilation = _sizes(node, "strides", rank), _sizes(node, "dilations", rank)
    mode = node.text("auto_pad", "explicit")
    if mode in _SAME:
        begins, ends = same_pads(spatial, stride, spans(kernel, dilation), _SAME[mode])
    elif mode == "valid":
        begins = ends = (0,) * rank
    elif mode == "explicit":
        begins, ends = _stated_pads(node, rank)
    else:
        raise node.unsupported("attribute auto_pad", mode, "explicit, valid, same_upper or same_lower")
    return Windows(tuple(kernel), stride, dilation, begins, ends)


def _sizes(node: Node, name: str, rank: int) -> tuple[int, ...]:
    values = node.integers(name, (1,) * rank) or (1,) * rank
    if len(values) != rank or min(values) < 1:
        raise GraphError(f"{node.label}: attribute {name} is {values}; {rank} sizes of at least 1 are needed")
    return values


def _stated_pads(node: Node, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    begins, ends = (node.integers(name, (0,) * rank) or (0,) * rank for name in ("pads_begin", "pads_end"))
    if len(begins) != rank or len(ends) != rank:
        raise GraphError(f"{node.label}: pads are {begins} and {ends}; {rank} entries are needed for each")
    if min(*begins, *ends) < 0:
        raise node.unsupported("pads", f"{begins} and {ends}", "no negative entry")
    return begins, ends
