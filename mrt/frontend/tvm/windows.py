"""Operators with sliding windows: convolution, its transpose and pooling, in any layout."""

from __future__ import annotations

from mrt.frontend.shared.deconvolution import deconvolved, reach
from mrt.frontend.shared.pooling import adaptive_windows, dilated_windows, pooled
from mrt.frontend.shared.shaping import bordered
from mrt.frontend.tvm.layouts import channels_first, in_layout, weight_in
from mrt.frontend.tvm.node import TVMNode
from mrt.frontend.tvm.pooling import windowed
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.pooling import Pooling


def convolution(node: TVMNode) -> Symbol:
    """Padding that differs between begin and end becomes a Pad before the convolution."""
    stride, padding = node.sizes("strides"), node.sizes("padding")
    spatial = len(stride)
    data, weight = channels_first(node, "data_layout", spatial), weight_in(node, "OI", spatial)
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
    return _applied(node, operator, [data, weight], spatial)


def deconvolution(node: TVMNode) -> Symbol:
    """The padding cuts each end of an axis, output_padding takes back some of what is cut off the end."""
    stride, padding, dilation = node.sizes("strides"), node.sizes("padding"), node.sizes("dilation")
    spatial = len(stride)
    data, weight = channels_first(node, "data_layout", spatial), weight_in(node, "IO", spatial)
    begins, ends = padding[:spatial], padding[spatial:]
    whole = reach(data.shape[2:], weight.shape[2:], stride, dilation)
    shape = [
        n - begin - end + more
        for n, begin, end, more in zip(whole, begins, ends, node.sizes("output_padding"), strict=True)
    ]
    groups = node.integer("groups")

    def make(suffix: str) -> Symbol:
        return deconvolved(node, [data, weight], stride, dilation, groups, begins, shape, suffix)

    return in_layout(node, "out_layout", spatial, make)


def pooling(node: TVMNode, drops_last: bool = False) -> Symbol:
    """ceil_mode counts windows as the convention "full" does, and so one that starts in the end padding.

    drops_last: whether the last window is left out where it starts there, as TVM does since Relax.
    """
    kernel, padding = node.sizes("pool_size"), node.sizes("padding")
    spatial = len(kernel)
    is_max = node.kind.startswith("nn.max_pool")
    data = channels_first(node, "layout", spatial)
    begins, ends = padding[:spatial], padding[spatial:]
    rounds_up = node.flag("ceil_mode")
    if max(node.sizes("dilation")) > 1:
        return _dilated_pooling(node, data, "max" if is_max else "avg", drops_last and rounds_up)
    operator = Pooling(
        kernel=kernel,
        pool_type="max" if is_max else "avg",
        stride=node.sizes("strides"),
        pad=begins if begins == ends else padding,
        pooling_convention="full" if rounds_up else "valid",
        count_include_pad=is_max or node.flag("count_include_pad"),
    )
    return _windowed(node, data, operator, spatial, drops_last and rounds_up)


def _dilated_pooling(node: TVMNode, data: Symbol, kind: str, drops_last: bool) -> Symbol:
    """Windows with gaps between their elements."""
    if kind == "avg":
        _check_float(node, data)
    padding, spatial = node.sizes("padding"), data.type.rank - 2
    windows = {}
    for place, size in enumerate(data.shape[2:]):
        kernel, stride, dilation = (node.sizes(name)[place] for name in ("pool_size", "strides", "dilation"))
        begin, end = padding[place], padding[place + spatial]
        free = size + begin + end - (kernel - 1) * dilation - 1
        count = (-(-free // stride) if node.flag("ceil_mode") else free // stride) + 1
        if drops_last and (count - 1) * stride >= size + begin:
            count -= 1
        node.made((kernel, max(count, 1)))
        windows[2 + place] = dilated_windows(size, kernel, stride, dilation, begin, end, count)
    counts_padding = kind == "max" or node.flag("count_include_pad")
    return in_layout(
        node, "out_layout", spatial, lambda suffix: pooled(node, data, windows, kind, counts_padding, suffix)
    )


def adaptive_pooling(node: TVMNode, output_size: tuple[int, ...] | None) -> Symbol:
    """Windows whose number along each axis is given, else one for each element.

    Case 1: one window is global pooling. Case 2: windows that do not overlap have one size and are plain pooling.
    Case 3: others are of uneven sizes.
    """
    spatial = len(node.text("layout")) - 2
    data = channels_first(node, "layout", spatial)
    pool_type = "max" if node.kind.startswith("nn.adaptive_max") else "avg"
    target = data.shape[2:] if output_size is None else output_size
    if set(target) == {1}:
        return _windowed(node, data, Pooling(pool_type=pool_type, global_pool=True), spatial)
    if len(target) != spatial or min(target) < 1:
        raise node.unsupported("attribute output_size", f"{target} on {data.type}", "a size of 1 or more for each axis")
    if any(size % count for size, count in zip(data.shape[2:], target, strict=True)):
        node.made(target)
        if pool_type == "avg":
            _check_float(node, data)
        windows = {
            axis: adaptive_windows(size, count)
            for axis, (size, count) in enumerate(zip(data.shape[2:], target, strict=True), start=2)
        }
        return in_layout(
            node, "out_layout", spatial, lambda suffix: pooled(node, data, windows, pool_type, False, suffix)
        )
    kernel = tuple(size // count for size, count in zip(data.shape[2:], target, strict=True))
    return _windowed(node, data, Pooling(kernel=kernel, pool_type=pool_type, stride=kernel), spatial)


def global_pooling(node: TVMNode) -> Symbol:
    """One window over everything."""
    spatial = len(node.text("layout")) - 2
    pool_type = "max" if node.kind.startswith("nn.global_max") else "avg"
    data = channels_first(node, "layout", spatial)
    return _windowed(node, data, Pooling(pool_type=pool_type, global_pool=True), spatial)


def _check_float(node: TVMNode, data: Symbol) -> None:
    if data.type.is_integer:
        raise node.unsupported("the data", data.type, "a float, for averages of windows with gaps or of uneven sizes,")


def _windowed(node: TVMNode, data: Symbol, operator: Pooling, spatial: int, drops_last: bool = False) -> Symbol:
    return in_layout(node, "out_layout", spatial, lambda suffix: windowed(node, data, operator, suffix, drops_last))


def _applied(node: TVMNode, operator: Operator, inputs: list[Symbol], spatial: int) -> Symbol:
    """`operator` on channels-first inputs, its result brought into the call's out_layout."""
    return in_layout(node, "out_layout", spatial, lambda suffix: node.apply(operator, inputs, suffix))
