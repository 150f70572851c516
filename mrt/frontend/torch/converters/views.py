"""Views of a tensor that take elements more than once or skip some: windows, diagonals, strides; and fold."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from mrt.frontend.shared.columns import laying, window_counts
from mrt.frontend.torch.building import reshaped, taken, with_batch
from mrt.frontend.torch.node import Expression, Node, constant, converter, shape_of


@converter("unfold.default")
def windows(node: Node) -> Expression:
    """Windows of an axis, every `step` places one; what lies in them is a new last axis."""
    data, length = node.tensor("self"), node.integer("size")
    shape = shape_of(data)
    axis = node.integer("dimension") % len(shape)
    count = node.shape[axis]
    node.made(count, length)
    places = np.arange(count)[:, None] * node.integer("step") + np.arange(length)
    found = node.emit(taken(data, axis, places.reshape(-1)))
    apart = node.emit(relax.op.reshape(found, (*shape[:axis], count, length, *shape[axis + 1 :])))
    order = [place for place in range(len(shape) + 1) if place != axis + 1]
    return relax.op.permute_dims(apart, [*order, axis + 1])


@converter("diagonal.default")
def diagonal(node: Node) -> Expression:
    """The elements at (i, i + offset) of two axes, as a new last axis."""
    data = node.tensor("self")
    shape, offset = shape_of(data), node.integer("offset")
    rows, columns = (node.integer(name) % len(shape) for name in ("dim1", "dim2"))
    others = [axis for axis in range(len(shape)) if axis not in (rows, columns)]
    moved = node.emit(relax.op.permute_dims(data, [*others, rows, columns]))
    flat = (*(shape[axis] for axis in others), shape[rows] * shape[columns])
    first = offset if offset >= 0 else -offset * shape[columns]
    places = first + np.arange(*node.made(node.shape[-1])) * (shape[columns] + 1)
    return taken(node.emit(relax.op.reshape(moved, flat)), len(others), places)


@converter("as_strided.default")
def as_strided(node: Node) -> Expression:
    """Elements of a tensor whose memory is in order; leading axes that both have alike stay axes."""
    source = node.arguments["self"].meta["val"]
    data, size, stride = node.tensor("self"), node.integers("size"), node.integers("stride")
    offset = node.integer("storage_offset") if node.has("storage_offset") else 0
    if not source.is_contiguous() or source.storage_offset() or not size:
        raise node.unsupported("the data", "a view of other data", "a tensor whose memory is in order")
    shape, own = shape_of(data), source.stride()
    first = 0
    while first < min(len(size), len(shape)) - 1 and (size[first], stride[first]) == (shape[first], own[first]):
        first += 1
    node.made(*size[first:])
    places = np.full((1,) * (len(size) - first), offset)
    for axis, (count, step) in enumerate(zip(size[first:], stride[first:], strict=True)):
        steps = np.arange(count) * step
        places = places + steps.reshape((-1,) + (1,) * (len(size) - first - 1 - axis))
    if places.max(initial=0) >= math.prod(shape[first:]):
        raise node.unsupported("argument stride", stride, f"one within the data, of shape {shape},")
    flat = node.emit(relax.op.reshape(data, (*shape[:first], math.prod(shape[first:]))))
    return reshaped(node.emit(taken(flat, first, places.reshape(-1))), node.shape)


@converter("col2im.default")
def fold(node: Node) -> Expression:
    """The sum of windows laid where they lie in the image: a transposed convolution by ones, a group a channel."""
    image, window, gaps, pads, stride = (
        node.sizes(name, 2) for name in ("output_size", "kernel_size", "dilation", "padding", "stride")
    )

    def joined(data: Expression) -> Expression:
        shape = shape_of(data)
        counts = window_counts(node.label, shape, image, window, stride, gaps, [2 * pad for pad in pads])
        channels = shape[1] // math.prod(window)
        node.made(shape[1], math.prod(window))
        added = tuple(
            length - ((count - 1) * step - 2 * pad + gap * (n - 1) + 1)
            for length, count, step, pad, gap, n in zip(image, counts, stride, pads, gaps, window, strict=True)
        )
        return relax.op.nn.conv2d_transpose(
            node.emit(relax.op.reshape(data, (*shape[:2], *counts))),
            constant(laying(channels, window)),
            strides=stride,
            padding=(*pads, *pads),
            output_padding=added,
            dilation=gaps,
            groups=channels,
        )

    return with_batch(node, node.tensor("self"), 1, joined)
