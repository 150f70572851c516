"""Operators that move, repeat or join elements; ONNX has them for every dtype."""

from __future__ import annotations

import numpy as np

from mrt.export.lowering import from_depth, to_depth
from mrt.export.onnx.node import Node, Value, exporter, lengths
from mrt.symbol import Operator
from mrt.symbol.operators.arrangement import (
    DepthToSpace,
    Repeat,
    SliceLike,
    SpaceToDepth,
    SwapAxis,
    Tile,
    UpSampling,
)
from mrt.symbol.operators.normalization import Dropout, Identity
from mrt.symbol.operators.transform import (
    Concat,
    ExpandDims,
    Flatten,
    Reshape,
    Slice,
    SliceAxis,
    Squeeze,
    Transpose,
)
from mrt.symbol.types import normalize_axis


@exporter(Identity, Dropout)
def identity(op: Operator, node: Node) -> Value:
    return node.input(0)


@exporter(Flatten, Reshape, ExpandDims, Squeeze)
def reshape(op: Operator, node: Node) -> Value:
    return node.reshaped(node.input(0), node.shape)


@exporter(Transpose)
def transpose(op: Transpose, node: Node) -> Value:
    return node.transposed(node.input(0), op.order(len(node.shape)))


@exporter(SwapAxis)
def swap_axis(op: SwapAxis, node: Node) -> Value:
    order = list(range(len(node.shape)))
    first, second = op.axes(len(order))
    order[first], order[second] = second, first
    return node.transposed(node.input(0), order)


@exporter(Slice, SliceAxis)
def slice_(op: Slice | SliceAxis, node: Node) -> Value:
    return node.sliced(node.input(0), op.slices(len(node.shape)), node.input_shape(0))


@exporter(SliceLike)
def slice_like(op: SliceLike, node: Node) -> Value:
    """The second tensor's shape decided the symbol's; its values are not read."""
    return node.sliced(node.input(0), [slice(n) for n in node.shape], node.input_shape(0))


@exporter(Concat)
def concat(op: Concat, node: Node) -> Value:
    parts = [node.input(index) for index in range(node.input_count)]
    return node.emit("Concat", parts, axis=normalize_axis(op.dim, len(node.shape)))


@exporter(Tile)
def tile(op: Tile, node: Node) -> Value:
    shape, reps = op.aligned(node.input_shape(0))
    data = node.input(0) if shape == node.input_shape(0) else node.reshaped(node.input(0), shape)
    return node.emit("Tile", [data, lengths(reps)])


@exporter(Repeat)
def repeat(op: Repeat, node: Node) -> Value:
    data, shape = node.input(0), node.input_shape(0)
    if op.axis is None:
        shape = (int(np.prod(shape)),)
        data = node.reshaped(data, shape)
    axis = normalize_axis(op.axis or 0, len(shape))
    return _repeated(node, data, axis, shape[axis], op.repeats)


@exporter(UpSampling)
def up_sampling(op: UpSampling, node: Node) -> Value:
    *_, height, width = node.input_shape(0)
    return _repeated(node, _repeated(node, node.input(0), 2, height, op.scale), 3, width, op.scale)


def _repeated(node: Node, data: Value, axis: int, length: int, times: int) -> Value:
    return node.emit("Gather", [data, np.repeat(lengths(range(length)), times)], axis=axis)


@exporter(DepthToSpace)
def depth_to_space(op: DepthToSpace, node: Node) -> Value:
    """By reshapes, since runtimes have ONNX's DepthToSpace for few dtypes."""
    return from_depth(node, node.input(0), node.input_shape(0), op.block_size)


@exporter(SpaceToDepth)
def space_to_depth(op: SpaceToDepth, node: Node) -> Value:
    """By reshapes, as depth_to_space."""
    return to_depth(node, node.input(0), node.input_shape(0), op.block_size)
