"""Operators with sliding windows: convolution, its transpose and pooling."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from tvm import relax

from mrt.frontend.torch.building import with_batch
from mrt.frontend.torch.node import Expression, Node, constant, converter, shape_of

_CONVOLUTIONS = (relax.op.nn.conv1d, relax.op.nn.conv2d, relax.op.nn.conv3d)
_TRANSPOSED = (relax.op.nn.conv1d_transpose, relax.op.nn.conv2d_transpose, relax.op.nn.conv3d_transpose)
_MAX_POOLS = (relax.op.nn.max_pool1d, relax.op.nn.max_pool2d, relax.op.nn.max_pool3d)
_AVERAGE_POOLS = (relax.op.nn.avg_pool1d, relax.op.nn.avg_pool2d, relax.op.nn.avg_pool3d)
_ADAPTIVE_POOLS = (
    relax.op.nn.adaptive_avg_pool1d,
    relax.op.nn.adaptive_avg_pool2d,
    relax.op.nn.adaptive_avg_pool3d,
)


@converter("convolution.default")
def convolution(node: Node) -> Expression:
    data, weight = node.tensor("input"), node.tensor("weight")
    spatial = len(shape_of(weight)) - 2
    attributes = {
        "strides": node.sizes("stride", spatial),
        "padding": node.sizes("padding", spatial) * 2,
        "dilation": node.sizes("dilation", spatial),
        "groups": node.integer("groups"),
    }
    if node.flag("transposed"):
        attributes["output_padding"] = node.sizes("output_padding", spatial)
        result = node.emit(_TRANSPOSED[spatial - 1](data, weight, **attributes))
    else:
        result = node.emit(_CONVOLUTIONS[spatial - 1](data, weight, **attributes))
    if not node.has("bias"):
        return result
    column = node.emit(relax.op.reshape(node.tensor("bias"), (1, node.shape[1], *(1,) * spatial)))
    return relax.op.add(result, column)


def _spatial(node: Node) -> int:
    """The number of spatial axes, which the operator's name says."""
    return int(re.findall(r"(\d)d", node.operator)[0])


@dataclass(frozen=True)
class _Windows:
    """The windows of a pooling, per spatial axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pad: tuple[int, ...]
    """The border that is asked for at each end."""
    end: tuple[int, ...]
    """How far the last window reaches beyond the data: with ceil_mode beyond the border too."""

    @property
    def reaches_out(self) -> bool:
        return any(end > pad for end, pad in zip(self.end, self.pad, strict=True))


def _windows(node: Node, data: Expression) -> _Windows:
    """The windows of a pooling, as many as PyTorch counts: one that would start in the end border is left out."""
    spatial = _spatial(node)
    kernel, pad = node.sizes("kernel_size", spatial), node.sizes("padding", spatial)
    stride = node.sizes("stride", spatial) or kernel
    dilation = node.sizes("dilation", spatial) if "dilation" in node.arguments else (1,) * spatial
    sizes, counts = shape_of(data)[-spatial:], node.shape[-spatial:]
    lengths = [(count - 1) * gap + 1 for count, gap in zip(kernel, dilation, strict=True)]
    end = tuple(
        max((count - 1) * step + length - size - before, 0)
        for count, step, length, size, before in zip(counts, stride, lengths, sizes, pad, strict=True)
    )
    return _Windows(kernel, stride, dilation, pad, end)


def _max_pooled(node: Node) -> Expression:
    data, spatial = node.tensor("self"), _spatial(node)
    windows = _windows(node, data)

    def pooled(data: Expression) -> Expression:
        padding = windows.pad + windows.end
        return _MAX_POOLS[spatial - 1](data, windows.kernel, windows.stride, padding, windows.dilation)

    return node.emit(with_batch(node, data, spatial, pooled))


@converter(*(f"max_pool{count}d.default" for count in (1, 2, 3)))
def max_pool(node: Node) -> Expression:
    return _max_pooled(node)


@converter(*(f"max_pool{count}d_with_indices.default" for count in (2, 3)))
def max_pool_with_indices(node: Node) -> tuple[Expression]:
    """The places of the maxima, the second output, are not given."""
    return (_max_pooled(node),)


@converter(*(f"avg_pool{count}d.default" for count in (1, 2, 3)))
def average_pool(node: Node) -> Expression:
    """A window is divided by the number of its elements: with count_include_pad those of the border count, but none
    beyond it. A divisor that is given divides them all.
    """
    data, spatial = node.tensor("self"), _spatial(node)
    windows = _windows(node, data)
    divisor = node.arguments.get("divisor_override")
    with_border = node.flag("count_include_pad")

    def pooled(data: Expression) -> Expression:
        average = _AVERAGE_POOLS[spatial - 1]
        kernel, stride, pad, end = windows.kernel, windows.stride, windows.pad, windows.end
        if divisor is not None:
            whole = average(data, kernel, stride, pad + end, count_include_pad=True)
            return relax.op.multiply(node.emit(whole), constant(math.prod(kernel) / divisor))
        if not with_border or not windows.reaches_out:
            ends = pad if with_border else end
            return average(data, kernel, stride, pad + ends, count_include_pad=with_border)
        # Zeros make the border data, which counts, and leave what lies beyond a border, which does not.
        border = [0, 0, 0, 0, *(width for width in pad for _ in range(2))]
        beyond = tuple(max(reach - width, 0) for reach, width in zip(end, pad, strict=True))
        bordered = node.emit(relax.op.nn.pad(data, border)) if any(pad) else data
        return average(bordered, kernel, stride, (0,) * spatial + beyond, count_include_pad=False)

    return with_batch(node, data, spatial, pooled)


@converter(
    *(f"adaptive_avg_pool{count}d.default" for count in (1, 2, 3)),
    *(f"_adaptive_avg_pool{count}d.default" for count in (2, 3)),
)
def adaptive_average_pool(node: Node) -> Expression:
    """Windows whose number along each axis is given."""
    data, spatial = node.tensor("self"), _spatial(node)
    pooling, counts = _ADAPTIVE_POOLS[spatial - 1], node.shape[-spatial:]
    if shape_of(data)[-spatial:] == counts:
        return data
    return with_batch(node, data, spatial, lambda data: pooling(data, counts))


@converter(*(f"adaptive_max_pool{count}d.default" for count in (1, 2, 3)))
def adaptive_max_pool(node: Node) -> tuple[Expression]:
    """Windows whose number is given and divides the length; the places of the maxima, the second output, are not."""
    data, spatial = node.tensor("self"), _spatial(node)
    sizes, counts = shape_of(data)[-spatial:], node.shape[-spatial:]
    if any(size % count for size, count in zip(sizes, counts, strict=True)):
        raise node.unsupported("argument output_size", f"{counts} on {sizes}", "a divisor of each size")
    kernel = tuple(size // count for size, count in zip(sizes, counts, strict=True))
    pooled = with_batch(node, data, spatial, lambda data: _MAX_POOLS[spatial - 1](data, kernel, kernel))
    return (node.emit(pooled),)
