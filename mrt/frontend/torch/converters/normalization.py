"""Normalisation in inference, and softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from tvm import relax

from mrt.frontend.torch.node import Expression, Node, constant, converter, shape_of


def _scale_and_shift(node: Node, shape: Sequence[int]) -> tuple[Expression, Expression]:
    """weight and bias, ones and zeros of a shape where they are not given."""
    weight = node.tensor("weight") if node.has("weight") else constant(np.ones(node.made(*shape)))
    bias = node.tensor("bias") if node.has("bias") else constant(np.zeros(node.made(*shape)))
    return weight, bias


@converter("_native_batch_norm_legit_no_training.default")
def batch_norm(node: Node) -> tuple[Expression]:
    """By the running statistics; the statistics of the batch, further outputs, are not given."""
    return (_by_running_statistics(node, node.tensor("input")),)


def _by_running_statistics(node: Node, data: Expression) -> Expression:
    weight, bias = _scale_and_shift(node, shape_of(data)[1:2])
    mean, variance = node.tensor("running_mean"), node.tensor("running_var")
    results = relax.op.nn.batch_norm(
        data, weight, bias, mean, variance, axis=1, epsilon=node.number("eps"), training=False
    )
    return node.emit(relax.TupleGetItem(node.emit(results, ""), 0))


@converter("instance_norm.default")
def instance_norm(node: Node) -> Expression:
    data = node.tensor("input")
    if not node.flag("use_input_stats"):
        return _by_running_statistics(node, data)
    weight, bias = _scale_and_shift(node, shape_of(data)[1:2])
    axes = [*range(2, len(shape_of(data)))]
    return relax.op.nn.instance_norm(data, weight, bias, channel_axis=1, axes=axes, epsilon=node.number("eps"))


@converter("group_norm.default")
def group_norm(node: Node) -> Expression:
    data = node.tensor("input")
    weight, bias = _scale_and_shift(node, shape_of(data)[1:2])
    axes, groups = [*range(2, len(shape_of(data)))], node.integer("num_groups")
    return relax.op.nn.group_norm(data, weight, bias, groups, channel_axis=1, axes=axes, epsilon=node.number("eps"))


@converter("native_group_norm.default")
def native_group_norm(node: Node) -> tuple[Expression]:
    data = node.tensor("input")
    weight, bias = _scale_and_shift(node, shape_of(data)[1:2])
    axes, groups = [*range(2, len(shape_of(data)))], node.integer("group")
    return (
        node.emit(
            relax.op.nn.group_norm(data, weight, bias, groups, channel_axis=1, axes=axes, epsilon=node.number("eps"))
        ),
    )


@converter("layer_norm.default")
def layer_norm(node: Node) -> Expression:
    shape = node.integers("normalized_shape")
    weight, bias = _scale_and_shift(node, shape)
    axes = [*range(-len(shape), 0)]
    return relax.op.nn.layer_norm(node.tensor("input"), weight, bias, axes=axes, epsilon=node.number("eps"))


@converter("native_layer_norm.default")
def native_layer_norm(node: Node) -> tuple[Expression]:
    """The mean and the reciprocal deviation, further outputs, are not given."""
    return (node.emit(layer_norm(node)),)


@converter("rms_norm.default")
def rms_norm(node: Node) -> Expression:
    """x weight / sqrt(mean of x^2 + eps); eps is that of the dtype if not given."""
    shape = node.integers("normalized_shape")
    weight = node.tensor("weight") if node.has("weight") else constant(np.ones(node.made(*shape)))
    eps = node.number("eps") if node.has("eps") else torch.finfo(node.arguments["input"].meta["val"].dtype).eps
    return relax.op.nn.rms_norm(node.tensor("input"), weight, axes=[*range(-len(shape), 0)], epsilon=eps)


@converter("softmax.int", "_softmax.default")
def softmax(node: Node) -> Expression:
    return relax.op.nn.softmax(node.operand("self", "float32"), node.integer("dim"))


@converter("log_softmax.int", "_log_softmax.default")
def log_softmax(node: Node) -> Expression:
    return relax.op.nn.log_softmax(node.operand("self", "float32"), node.integer("dim"))


@converter("linalg_vector_norm.default")
def vector_norm(node: Node) -> Expression:
    """(sum of |x|^order)^(1 / order) over axes, the largest or smallest |x| for orders of plus or minus infinity."""
    data, order, keepdims = node.operand("self", "float32"), node.number("ord"), node.flag("keepdim")
    axes = node.axes("dim", len(shape_of(data)))
    if order == 2:
        squares = node.emit(relax.op.square(data))
        return relax.op.sqrt(node.emit(relax.op.sum(squares, axes, keepdims)))
    sizes = node.emit(relax.op.abs(data))
    if math.isinf(order):
        return (relax.op.max if order > 0 else relax.op.min)(sizes, axes, keepdims)
    if order == 0:
        return relax.op.sum(node.emit(relax.op.sign(sizes)), axes, keepdims)
    if order == 1:
        return relax.op.sum(sizes, axes, keepdims)
    total = relax.op.sum(node.emit(relax.op.power(sizes, constant(order))), axes, keepdims)
    return relax.op.power(node.emit(total), constant(1 / order))


@converter("cdist.default", "_cdist_forward.default")
def distances(node: Node) -> Expression:
    """The norms of the differences of every row of x1 and every row of x2."""
    x, y = node.tensor("x1"), node.tensor("x2")
    rank, order = len(shape_of(x)), node.number("p")
    rows, columns = (node.emit(relax.op.expand_dims(each, axis)) for each, axis in ((x, rank - 1), (y, rank - 2)))
    node.made(*node.shape, shape_of(x)[-1])
    difference = node.emit(relax.op.subtract(rows, columns))
    if order == 2:
        return relax.op.sqrt(node.emit(relax.op.sum(node.emit(relax.op.square(difference)), [rank])))
    if order not in (1, math.inf):
        raise node.unsupported("argument p", order, "1, 2 or inf")
    sizes = node.emit(relax.op.abs(difference))
    return (relax.op.sum if order == 1 else relax.op.max)(sizes, [rank])
