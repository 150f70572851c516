"""Normalisation: BatchNormInference, MVN, SoftMax and their like."""

from __future__ import annotations

import numpy as np

from mrt.frontend.openvino.node import Node, converter
from mrt.frontend.shared.normalization import layer_normalized, length_normalized, locally_normalized
from mrt.symbol import Symbol
from mrt.symbol.operators.broadcast import BroadcastSub
from mrt.symbol.operators.normalization import BatchNorm, LogSoftmax, Softmax
from mrt.symbol.operators.reduce import Mean

_SOFTMAXES = {"Softmax": Softmax, "LogSoftmax": LogSoftmax}


@converter(*_SOFTMAXES)
def softmax(node: Node) -> Symbol:
    data = node.symbol(0)
    axis = node.axis(node.integer("axis", -1), data.type.rank)
    return node.apply(_SOFTMAXES[node.operator](axis=axis), [data])


@converter("BatchNormInference")
def batch_normalization(node: Node) -> Symbol:
    """Data, gamma, beta, mean and variance; the version of operation set 1 has the data third."""
    first = 2 if len(node.shape(0)) == 1 and len(node.shape(2)) > 1 else 0
    order = (2, 0, 1, 3, 4) if first else (0, 1, 2, 3, 4)
    roles = ("data", "gamma", "beta", "mean", "variance")
    inputs = [node.symbol(index, role) for index, role in zip(order, roles, strict=True)]
    return node.apply(BatchNorm(eps=node.number("epsilon"), fix_gamma=False), inputs)


@converter("MVN")
def mean_variance_normalization(node: Node) -> Symbol:
    """(x - mean) / sqrt(variance + eps) over the last axes."""
    data = node.symbol(0)
    rank = data.type.rank
    if node.has(1):
        axes = node.known_axes(1, rank)
    else:
        axes = tuple(range(1 if node.flag("across_channels", True) else 2, rank))
    if not axes or axes != tuple(range(axes[0], rank)):
        raise node.unsupported("the axes", f"{axes} of {data.type}", "the last ones")
    if not node.flag("normalize_variance", True):
        mean = node.apply(Mean(axis=axes, keepdims=True), [data], "mean")
        return node.apply(BroadcastSub(), [data, mean])
    mode = node.text("eps_mode", "inside_sqrt").lower()
    if mode != "inside_sqrt":
        raise node.unsupported("attribute eps_mode", mode, "inside_sqrt")
    (count,) = node.made((int(np.prod([data.shape[axis] for axis in axes])),))
    gamma, beta = node.parameter(np.ones(count), "gamma"), node.parameter(np.zeros(count), "beta")
    return layer_normalized(node, data, axes[0], gamma, beta, node.number("eps", 1e-9))


@converter("NormalizeL2")
def length_normalization(node: Node) -> Symbol:
    """x / sqrt(sum of x^2 + eps) over one axis."""
    data = node.symbol(0)
    axes, mode = node.known_axes(1, data.type.rank), node.text("eps_mode", "add")
    if len(axes) != 1 or mode != "add":
        raise node.unsupported("axes and eps_mode", f"{axes} and {mode}", "one axis and add")
    return length_normalized(node, data, axes[0], node.number("eps"))


@converter("LRN")
def local_response_normalization(node: Node) -> Symbol:
    """Over neighbouring channels."""
    data, size = node.symbol(0), node.integer("size")
    axes = node.known_axes(1, data.type.rank)
    if axes != (1,) or size < 1:
        raise node.unsupported("axes and size", f"{axes} and {size}", "the channels and a size")
    half = (size - 1) // 2
    alpha, beta, bias = node.number("alpha"), node.number("beta"), node.number("bias", 1.0)
    return locally_normalized(node, data, (half, half), alpha / size, beta, bias)
