"""Normalisation: batch_norm in inference, layer_norm, instance_norm and their like, softmax."""

from __future__ import annotations

import math

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.channels_first import reordered, transposed
from mrt.frontend.shared.node import Value
from mrt.frontend.shared.normalization import group_normalized, layer_normalized
from mrt.frontend.shared.shaping import reshaped
from mrt.frontend.tvm.node import TVMNode
from mrt.symbol import Symbol
from mrt.symbol.operators.instance_normalization import InstanceNorm
from mrt.symbol.operators.normalization import BatchNorm, LogSoftmax, Softmax


def batch_norm(node: TVMNode) -> Value:
    """The output, and the moving mean and variance as they were, since nothing is trained."""
    data = node.symbol(0)
    axis = node.axis(node.integer("axis"), data.type.rank)
    channels = data.shape[axis]
    gamma, beta = _scale_and_shift(node, channels)
    operator = BatchNorm(eps=node.number("epsilon"), fix_gamma=False, axis=axis)
    inputs = [data, gamma, beta, node.symbol(3, "moving_mean"), node.symbol(4, "moving_var")]
    return node.apply(operator, inputs), node.input(3), node.input(4)


def _scale_and_shift(node: TVMNode, channels: int) -> tuple[Symbol, Symbol]:
    """gamma and beta, one entry for each channel, as far as attributes say that they are used."""
    gamma = node.symbol(1, "gamma") if node.flag("scale") else node.parameter(np.ones(channels), "gamma")
    beta = node.symbol(2, "beta") if node.flag("center") else node.parameter(np.zeros(channels), "beta")
    return gamma, beta


def instance_norm(node: TVMNode, channel: int) -> Symbol:
    """Normalises each channel of each sample over all other axes."""
    data, back = _channels_second(node, channel)
    gamma, beta = _scale_and_shift(node, data.shape[1])
    operator = InstanceNorm(eps=node.number("epsilon"))
    return reordered(node, back, lambda suffix: node.apply(operator, [data, gamma, beta], suffix))


def group_norm(node: TVMNode, channel: int) -> Symbol:
    """Normalises parts of the channels of each sample over all other axes."""
    data, back = _channels_second(node, channel)
    gamma, beta = _scale_and_shift(node, data.shape[1])
    groups, eps = node.integer("num_groups"), node.number("epsilon")
    return reordered(node, back, lambda suffix: group_normalized(node, data, groups, gamma, beta, eps, suffix))


def _channels_second(node: TVMNode, channel: int) -> tuple[Symbol, list[int]]:
    """The data with its batch and channels first, and the order of axes that brings it back."""
    data = node.symbol(0)
    order = [0, channel, *(axis for axis in range(1, data.type.rank) if axis != channel)]
    return transposed(node, data, order, "channels_second"), np.argsort(order).tolist()


def layer_norm(node: TVMNode, first: int) -> Symbol:
    """Normalises over the last axes, from `first` on."""
    data = node.symbol(0)
    size = math.prod(data.shape[first:])
    gamma, beta = _as_vector(node, 1, size, "gamma"), _as_vector(node, 2, size, "beta")
    return layer_normalized(node, data, first, gamma, beta, node.number("epsilon"))


def _as_vector(node: TVMNode, index: int, size: int, role: str) -> Symbol:
    """Scale or shift with one entry for each normalised element."""
    shape = node.shape(index)
    if math.prod(shape) != size:
        raise GraphError(f"{node.label}: {role} has shape {shape}; {size} elements are needed")
    if len(shape) == 1:
        return node.symbol(index, role)
    if node.array(index) is None:
        return reshaped(node, node.symbol(index), (size,), role)
    return node.parameter_of(index, role, "flat", lambda array: array.reshape(-1))


_SOFTMAXES = {"nn.softmax": Softmax, "nn.log_softmax": LogSoftmax}


def softmax(node: TVMNode) -> Symbol:
    data = node.symbol(0)
    return node.apply(_SOFTMAXES[node.kind](axis=node.axis(node.integer("axis"), data.type.rank)), [data])
