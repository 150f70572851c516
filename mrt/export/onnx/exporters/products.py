"""Sums of products: convolutions and matrix products, in 8-bit factors by ConvInteger and MatMulInteger.

Both factors are uint8 with a zero point, whatever their sign: kernels for uint8 and int8 may add two products in 16
bits, which saturates (vpmaddubsw), where the processor has no instructions for sums of four; those for uint8 and uint8
widen first. Zero points are corrected within the kernel modulo 2^32, so that a result that fits 32 bits is exact.
Wider factors are multiplied by the int32 MatMul, convolutions as products with the windows' elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mrt.export.lowering import spread_data, turned_weight
from mrt.export.onnx.node import Factor, Node, Value, exporter, int32
from mrt.symbol import Array
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.dot import Dot
from mrt.symbol.operators.linear import BatchDot, FullyConnected


@exporter(FullyConnected)
def fully_connected(op: FullyConnected, node: Node) -> Value:
    data, weight = node.factors(0, 1)
    if op.flatten and len(node.input_shape(0)) != 2:
        data = Factor(node.reshaped(data.value, (node.shape[0], prod(node.input_shape(0)[1:]))), data.zero_point)
    total = matrix_product(node, data, swapped(node, weight, 2))
    return total if op.no_bias else node.emit("Add", [total, node.wide(2)])


@exporter(BatchDot, Dot)
def batch_dot(op: BatchDot, node: Node) -> Value:
    left, right = node.factors(0, 1)
    rank = len(node.shape)
    left = swapped(node, left, rank) if op.transpose_a else left
    right = swapped(node, right, rank) if op.transpose_b else right
    return matrix_product(node, left, right)


def swapped(node: Node, factor: Factor, rank: int) -> Factor:
    """The factor with its last two axes exchanged."""
    return Factor(node.transposed(factor.value, (*range(rank - 2), rank - 1, rank - 2)), factor.zero_point)


def matrix_product(node: Node, left: Factor, right: Factor) -> Value:
    if not left.is_byte:
        return node.emit("MatMul", [left.value, right.value])
    return node.emit("MatMulInteger", [left.value, right.value, zero_point(left), zero_point(right)], "int32")


def zero_point(factor: Factor) -> Array:
    return np.asarray(factor.zero_point, np.uint8)


@exporter(Convolution)
def convolution(op: Convolution, node: Node) -> Value:
    data, weight = node.factors(0, 1)
    stride, dilate, pad = op.window(len(op.kernel))
    total = convolved(node, data, node.input_shape(0), weight, node.input_shape(1), stride, dilate, pad, op.num_group)
    return total if op.no_bias else _with_bias(node, total)


@exporter(Deconvolution)
def deconvolution(op: Deconvolution, node: Node) -> Value:
    """A convolution, with the weight turned round, of the data with stride - 1 zeros between its elements."""
    data, weight = node.factors(0, 1)
    image, shape = spread_data(node, op, data.value, node.input_shape(0), data.zero_point)
    turned, rows = turned_weight(node, op, weight.value, node.input_shape(1))
    rank = len(op.kernel)
    once, none, (_, dilate) = (1,) * rank, (0,) * rank, op.window(rank)
    factors = Factor(image, data.zero_point), Factor(turned, weight.zero_point)
    total = convolved(node, factors[0], shape, factors[1], rows, once, dilate, none, op.num_group)
    return total if op.no_bias else _with_bias(node, total)


def _with_bias(node: Node, total: Value) -> Value:
    bias = node.reshaped(node.wide(2), (-1, *(1,) * (len(node.shape) - 2)))
    return node.emit("Add", [total, bias])


def convolved(
    node: Node,
    data: Factor,
    shape: Sequence[int],
    weight: Factor,
    weight_shape: Sequence[int],
    stride: Sequence[int],
    dilate: Sequence[int],
    pad: Sequence[int],
    groups: int,
) -> Value:
    """The convolution of data of `shape`, (N, C, *spatial), with a weight (O, C / groups, *kernel)."""
    if data.is_byte:
        # The border that ConvInteger adds holds the zero point.
        return node.emit(
            "ConvInteger",
            [data.value, weight.value, zero_point(data), zero_point(weight)],
            "int32",
            kernel_shape=list(weight_shape[2:]),
            strides=list(stride),
            dilations=list(dilate),
            pads=[*pad, *pad],
            group=groups,
        )
    border = (0, 0, *pad)
    image = node.padded(data.value, border, border, 0)
    padded = [n + 2 * p for n, p in zip(shape[2:], pad, strict=True)]
    places, spatial = window_places(padded, weight_shape[2:], stride, dilate)
    flat = node.reshaped(image, (*shape[:2], prod(padded)))
    taken = node.emit("Gather", [flat, places], axis=2)
    columns = node.reshaped(taken, (shape[0], groups, shape[1] // groups * places.shape[0], places.shape[1]))
    rows = node.reshaped(weight.value, (groups, weight_shape[0] // groups, prod(weight_shape[1:])))
    return node.reshaped(node.emit("MatMul", [rows, columns]), (shape[0], weight_shape[0], *spatial))


def window_places(
    spatial: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilate: Sequence[int]
) -> tuple[Array, tuple[int, ...]]:
    """For each tap (axis 0) and window (axis 1) the element of the flattened image; and the windows along each axis."""
    rank = len(spatial)
    spans = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilate, strict=True))
    windows = sliding_window_view(np.arange(prod(spatial)).reshape(tuple(spatial)), spans)
    windows = windows[tuple(slice(None, None, step) for step in (*stride, *dilate))]
    counts = windows.shape[:rank]
    return int32(windows.reshape(prod(counts), -1).T), counts
