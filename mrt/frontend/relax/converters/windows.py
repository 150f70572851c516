"""Operators with sliding windows: convolution and pooling, in any layout."""

from __future__ import annotations

import numpy as np

from mrt.frontend.relax.converters.layouts import permutation, transposed
from mrt.frontend.relax.node import Node, converter
from mrt.frontend.shaping import bordered
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.pooling import Pooling

_SPATIAL = "DHW"


@converter("nn.conv1d", "nn.conv2d", "nn.conv3d")
def convolution(node: Node) -> Symbol:
    """Padding that differs between begin and end becomes a Pad before the convolution."""
    stride, padding = node.sizes("strides"), node.sizes("padding")
    spatial = len(stride)
    data, weight = _channels_first(node, "data_layout", spatial), _weight(node, spatial)
    begins, ends = padding[:spatial], padding[spatial:]
    if begins != ends:
        data, begins = bordered(node, data, begins, ends, "padded"), (0,) * spatial
    operator = Convolution(
        kernel=weight.shape[2:],
        num_filter=weight.shape[0],
        stride=stride,
        dilate=node.sizes("dilation"),
        pad=begins,
        num_group=node.integer("groups"),
        no_bias=True,
    )
    return _in_layout(node, operator, [data, weight], spatial)


def _weight(node: Node, spatial: int) -> Symbol:
    """The weight as outputs, inputs, kernel: brought into that order at once where it is known."""
    layout = "OI" + _SPATIAL[-spatial:]
    axes = permutation(node, "kernel_layout", layout)
    if axes == tuple(range(len(axes))):
        return node.symbol(1, "weight")
    if node.array(1) is None:
        return transposed(node, node.symbol(1), axes, "weight")
    return node.parameter_of(1, "weight", layout.lower(), lambda w: np.transpose(w, axes))


@converter("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d", "nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d")
def pooling(node: Node) -> Symbol:
    """TVM's ceil_mode counts windows as the convention "full" does: it keeps one that starts in the end padding."""
    kernel, padding = node.sizes("pool_size"), node.sizes("padding")
    spatial = len(kernel)
    if max(node.sizes("dilation")) > 1:
        raise node.unsupported("attribute dilation", node.sizes("dilation"), "1 on every axis")
    is_max = node.operator.startswith("relax.nn.max_pool")
    begins, ends = padding[:spatial], padding[spatial:]
    operator = Pooling(
        kernel=kernel,
        pool_type="max" if is_max else "avg",
        stride=node.sizes("strides"),
        pad=begins if begins == ends else padding,
        pooling_convention="full" if node.flag("ceil_mode") else "valid",
        count_include_pad=is_max or node.flag("count_include_pad"),
    )
    return _in_layout(node, operator, [_channels_first(node, "layout", spatial)], spatial)


@converter("nn.adaptive_avg_pool1d", "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d")
def adaptive_pooling(node: Node) -> Symbol:
    """Case 1: one window is global pooling. Case 2: windows that do not overlap have one size and are plain pooling."""
    spatial = len(node.text("layout")) - 2
    data = _channels_first(node, "layout", spatial)
    given = node.integers("output_size")
    target = given if given is not None else data.shape[2:]
    if set(target) == {1}:
        return _in_layout(node, Pooling(pool_type="avg", global_pool=True), [data], spatial)
    if any(size % count for size, count in zip(data.shape[2:], target, strict=True)):
        raise node.unsupported("attribute output_size", f"{target} on {data.type}", "a divisor of each size")
    kernel = tuple(size // count for size, count in zip(data.shape[2:], target, strict=True))
    return _in_layout(node, Pooling(kernel=kernel, pool_type="avg", stride=kernel), [data], spatial)


def _channels_first(node: Node, attribute: str, spatial: int) -> Symbol:
    """The data input as NCW, NCHW or NCDHW."""
    return transposed(node, node.symbol(0, "data"), permutation(node, attribute, "NC" + _SPATIAL[-spatial:]), "data")


def _in_layout(node: Node, operator: Operator, inputs: list[Symbol], spatial: int) -> Symbol:
    """`operator` on channels-first inputs, its result brought into the call's out_layout."""
    axes = np.argsort(permutation(node, "out_layout", "NC" + _SPATIAL[-spatial:])).tolist()
    if axes == list(range(len(axes))):
        return node.apply(operator, inputs)
    return transposed(node, node.apply(operator, inputs, "channels_first"), axes)
