"""Normalisation: batch_norm in inference, layer_norm, softmax."""

from __future__ import annotations

import math

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.node import Value
from mrt.frontend.normalization import layer_normalized
from mrt.frontend.relax.node import Node, converter
from mrt.frontend.shaping import reshaped
from mrt.symbol import Symbol
from mrt.symbol.operators.normalization import BatchNorm, Softmax


@converter("nn.batch_norm")
def batch_norm(node: Node) -> Value:
    """The output, and the moving mean and variance as they were, since nothing is trained."""
    if node.flag("training"):
        raise node.unsupported("attribute training", "True", "False, which is inference,")
    data = node.symbol(0)
    axis = node.axis(node.integer("axis"), data.type.rank)
    channels = data.shape[axis]
    gamma = node.symbol(1, "gamma") if node.flag("scale") else node.parameter(np.ones(channels), "gamma")
    beta = node.symbol(2, "beta") if node.flag("center") else node.parameter(np.zeros(channels), "beta")
    operator = BatchNorm(eps=node.number("epsilon"), fix_gamma=False, axis=axis)
    inputs = [data, gamma, beta, node.symbol(3, "moving_mean"), node.symbol(4, "moving_var")]
    return node.apply(operator, inputs), node.input(3), node.input(4)


@converter("nn.layer_norm")
def layer_norm(node: Node) -> Symbol:
    """Normalises over the last axis, or several last ones."""
    data = node.symbol(0)
    axes = node.axes("axes", data.type.rank)
    if axes != tuple(range(data.type.rank - len(axes), data.type.rank)):
        raise node.unsupported("attribute axes", f"{axes} on {data.type}", "the last axis, or several last ones,")
    size = math.prod(data.shape[axes[0] :])
    gamma, beta = _as_vector(node, 1, size, "gamma"), _as_vector(node, 2, size, "beta")
    return layer_normalized(node, data, axes[0], gamma, beta, node.number("epsilon"))


def _as_vector(node: Node, index: int, size: int, role: str) -> Symbol:
    """Scale or shift with one entry for each normalised element."""
    shape = node.shape(index)
    if math.prod(shape) != size:
        raise GraphError(f"{node.label}: {role} has shape {shape}; {size} elements are needed")
    if len(shape) == 1:
        return node.symbol(index, role)
    if node.array(index) is None:
        return reshaped(node, node.symbol(index), (size,), role)
    return node.parameter_of(index, role, "flat", lambda array: array.reshape(-1))


@converter("nn.softmax")
def softmax(node: Node) -> Symbol:
    data = node.symbol(0)
    return node.apply(Softmax(axis=node.axis(node.integer("axis"), data.type.rank)), [data])
