"""Sums of products, whose factors are int32: no kernel of any TVM adds such products in fewer bits."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mrt.export.lowering import spread_data, turned_weight
from mrt.export.relay.expressions import Attribute, Value
from mrt.export.relay.node import Node, exporter
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.dot import Dot
from mrt.symbol.operators.linear import BatchDot, FullyConnected


@exporter(FullyConnected)
def fully_connected(op: FullyConnected, node: Node) -> Value:
    weight = node.wide(1)
    rows = node.reshaped(node.wide(0), (prod(node.shape[:-1]), weight.shape[1]))
    total = dense(node, rows, weight)
    total = total if op.no_bias else node.call("nn.bias_add", [total, node.wide(2)], total.shape)
    return node.reshaped(total, node.shape)


def dense(node: Node, rows: Value, weight: Value) -> Value:
    shape = (rows.shape[0], weight.shape[0])
    return node.call("nn.dense", [rows, weight], shape, {"units": weight.shape[0], "out_dtype": "int32"})


@exporter(Dot)
def dot(op: Dot, node: Node) -> Value:
    left, right = node.wide(0), node.wide(1)
    left = node.transposed(left, (1, 0)) if op.transpose_a else left
    return dense(node, left, right if op.transpose_b else node.transposed(right, (1, 0)))


@exporter(BatchDot)
def batch_dot(op: BatchDot, node: Node) -> Value:
    """Products of matrices over one leading axis, the right one transposed: what every TVM has kernels for."""
    leading = prod(node.shape[:-2])
    left, right = (node.reshaped(node.wide(i), (leading, *node.input_shape(i)[-2:])) for i in (0, 1))
    left = node.transposed(left, (0, 2, 1)) if op.transpose_a else left
    right = right if op.transpose_b else node.transposed(right, (0, 2, 1))
    shape = (left.shape[0], left.shape[1], right.shape[1])
    total = node.call("nn.batch_matmul", [left, right], shape, {"out_dtype": "int32", "transpose_b": True})
    return node.reshaped(total, node.shape)


@exporter(Convolution)
def convolution(op: Convolution, node: Node) -> Value:
    stride, dilate, pad = op.window(len(op.kernel))
    total = convolved(node, node.wide(0), node.wide(1), stride, dilate, pad, op.num_group)
    return total if op.no_bias else node.call("nn.bias_add", [total, node.wide(2)], total.shape)


@exporter(Deconvolution)
def deconvolution(op: Deconvolution, node: Node) -> Value:
    """A convolution, since nn.conv2d_transpose has no dilation, and in earlier versions no groups."""
    data, _ = spread_data(node, op, node.wide(0), node.input_shape(0))
    weight, _ = turned_weight(node, op, node.wide(1), node.input_shape(1))
    rank = len(op.kernel)
    total = convolved(node, data, weight, (1,) * rank, op.window(rank)[1], (0,) * rank, op.num_group)
    return total if op.no_bias else node.call("nn.bias_add", [total, node.wide(2)], total.shape)


def convolved(
    node: Node,
    data: Value,
    weight: Value,
    stride: Sequence[int],
    dilate: Sequence[int],
    pad: Sequence[int],
    groups: int,
) -> Value:
    """The convolution of data (N, C, *spatial) with a weight (O, C / groups, *kernel).

    One axis is written as two, and the groups of three axes apart: earlier versions of TVM have no kernels for these.
    """
    kernel = weight.shape[2:]
    if len(kernel) == 1:
        flat = node.reshaped(data, (*data.shape[:2], 1, data.shape[2]))
        row = node.reshaped(weight, (*weight.shape[:2], 1, *kernel))
        total = convolved(node, flat, row, (1, *stride), (1, *dilate), (0, *pad), groups)
        return node.reshaped(total, (*total.shape[:2], total.shape[3]))
    if len(kernel) == 3 and groups > 1:
        parts = [
            convolved(
                node, _group(node, data, 1, i, groups), _group(node, weight, 0, i, groups), stride, dilate, pad, 1
            )
            for i in range(groups)
        ]
        return node.concatenated(parts, 1)
    spatial = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, d, p in zip(data.shape[2:], kernel, stride, dilate, pad, strict=True)
    ]
    attributes: dict[str, Attribute] = {
        **({"strides": list(stride)} if max(stride) > 1 else {}),
        "padding": [*pad, *pad],
        **({"dilation": list(dilate)} if max(dilate) > 1 else {}),
        **({"groups": groups} if groups > 1 else {}),
        "channels": weight.shape[0],
        "kernel_size": list(kernel),
        "out_dtype": "int32",
    }
    shape = (data.shape[0], weight.shape[0], *spatial)
    return node.call(f"nn.conv{len(kernel)}d", [data, weight], shape, attributes)


def _group(node: Node, value: Value, axis: int, index: int, groups: int) -> Value:
    """One of as many equal parts along an axis."""
    length = value.shape[axis] // groups
    cuts = [slice(None)] * len(value.shape)
    cuts[axis] = slice(index * length, (index + 1) * length)
    return node.sliced(value, cuts, value.shape)
