"""Layers in forms that MXNet has: matrix products of any rank, deconvolutions, pooling, borders, other shapes."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from mrt.export.lowering import is_global, spread_data, turned_weight, window_padding
from mrt.export.mxnet.node import Node, exporter
from mrt.symbol import Operator, Symbol
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.linear import BatchDot, FullyConnected
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.transform import ExpandDims, Flatten, Reshape, Squeeze
from mrt.symbol.types import INT32_MIN

_MOST_AXES = 2
"""Spatial axes of a deconvolution that MXNet computes without a GPU."""


@exporter(Flatten, Reshape, ExpandDims, Squeeze)
def reshape(op: Operator, node: Node) -> Symbol:
    """With the symbol's own codes, which leave the batch free, unless a rank is 0."""
    if () in (node.symbol.shape, node.symbol.inputs[0].shape):
        return node.reshaped(node.input(0), node.shape)
    return node.apply(op, node.inputs)


@exporter(FullyConnected)
def fully_connected(op: FullyConnected, node: Node) -> Symbol:
    if len(node.input_shape(0)) > 1:
        return node.apply(op, node.inputs)
    row = node.reshaped(node.input(0), (1, *node.input_shape(0)))
    return node.reshaped(node.apply(op, [row, *node.inputs[1:]]), node.shape)


@exporter(BatchDot)
def batch_dot(op: BatchDot, node: Node) -> Symbol:
    """Over one leading axis: earlier versions know no more."""
    leading = prod(node.shape[:-2])
    matrices = [node.reshaped(x, (leading, *x.shape[-2:])) for x in node.inputs]
    return node.reshaped(node.apply(op, matrices), node.shape)


@exporter(Deconvolution)
def deconvolution(op: Deconvolution, node: Node) -> Symbol:
    """The same operator along one or two axes, else a convolution."""
    rank = len(op.kernel)
    if rank <= _MOST_AXES:
        return node.apply(op, node.inputs)
    data, _ = spread_data(node, op, node.input(0), node.input_shape(0))
    weight, _ = turned_weight(node, op, node.input(1), node.input_shape(1))
    convolution = Convolution(
        op.kernel, op.num_filter, dilate=op.window(rank)[1], num_group=op.num_group, no_bias=op.no_bias
    )
    return node.apply(convolution, [data, weight, *node.inputs[2:]])


@exporter(Pooling)
def pooling(op: Pooling, node: Node) -> Symbol:
    """The same operator where both sides of each axis have the same padding, else after a border of its own."""
    shape = node.input_shape(0)
    if is_global(op, shape):
        return node.apply(Pooling(pool_type=op.pool_type, global_pool=True), node.inputs)
    before, after = op.pads(len(shape) - 2)
    if before == after:
        return node.apply(op, node.inputs)
    _, before, after = window_padding(op, shape, node.shape)
    border = INT32_MIN if op.pool_type == "max" else 0
    data = node.padded(node.input(0), (0, 0, *before), (0, 0, *after), border)
    return node.apply(replace(op, pad=(), pooling_convention="valid"), [data])


@exporter(Pad)
def pad(op: Pad, node: Node) -> Symbol:
    return node.bordered(node.input(0), op.pad_width[::2], op.pad_width[1::2], op.mode, int(op.constant_value))
