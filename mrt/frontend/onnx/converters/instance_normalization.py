"""Normalisation of each sample by itself: InstanceNormalization, GroupNormalization, LRN and their like."""

from __future__ import annotations

import math

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shared.normalization import group_normalized, layer_normalized, length_normalized, locally_normalized
from mrt.symbol import Symbol
from mrt.symbol.operators.broadcast import BroadcastDiv
from mrt.symbol.operators.functions import Abs
from mrt.symbol.operators.instance_normalization import InstanceNorm
from mrt.symbol.operators.reduce import Sum
from mrt.symbol.operators.selection import MaximumScalar
from mrt.symbol.operators.transform import Transpose

NO_EPS = 1e-30
"""Keeps a vector of zeros zero, as ONNX Runtime does, and is lost beside any other length."""

_NO_VARIANCE = 1e-18
"""What a deviation of 1e-9, which ONNX adds against division by 0, is as a variance."""


@converter("InstanceNormalization")
def instance_normalization(node: Node) -> Symbol:
    operator = InstanceNorm(eps=node.number("epsilon", 1e-5))
    return node.apply(operator, [node.symbol(index) for index in range(3)])


@converter("GroupNormalization")
def group_normalization(node: Node) -> Symbol:
    """Scale and bias have an entry for each channel, before opset 21 for each group."""
    data, groups = node.symbol(0), node.integer("num_groups", 0)
    if data.type.rank < 2 or groups < 1 or data.shape[1] % groups:
        raise GraphError(f"{node.label}: num_groups {groups} does not divide the channels of {data.type}")
    channels = data.shape[1]
    gamma, beta = (_for_each_channel(node, index, channels, groups) for index in (1, 2))
    return group_normalized(node, data, groups, gamma, beta, node.number("epsilon", 1e-5))


def _for_each_channel(node: Node, index: int, channels: int, groups: int) -> Symbol:
    role, given = ("scale", "bias")[index - 1], channels if node.opset >= 21 else groups
    if node.shape(index) != (given,):
        raise GraphError(f"{node.label}: {role} has shape {node.shape(index)}; ({given},) is needed")
    if given == channels:
        return node.symbol(index)
    node.known(index, role)
    return node.parameter_of(index, role, f"over_{channels}", lambda v: np.repeat(v, channels // groups))


@converter("MeanVarianceNormalization")
def mean_variance_normalization(node: Node) -> Symbol:
    """(x - mean) / deviation over the axes named: a LayerNorm of them as one last axis, between transposes."""
    data = node.symbol(0)
    rank = data.type.rank
    axes = sorted({node.axis(axis, rank) for axis in node.integers("axes") or (0, 2, 3)})
    order = (*(axis for axis in range(rank) if axis not in axes), *axes)
    size = math.prod(node.made([data.shape[axis] for axis in axes]))
    gamma, beta = node.parameter(np.ones(size), "gamma"), node.parameter(np.zeros(size), "beta")
    moved = node.apply(Transpose(axes=order), [data], "moved")
    normalized = layer_normalized(node, moved, rank - len(axes), gamma, beta, _NO_VARIANCE, "normalized")
    return node.apply(Transpose(axes=tuple(int(axis) for axis in np.argsort(order))), [normalized])


@converter("LpNormalization")
def lp_normalization(node: Node) -> Symbol:
    """x / length along one axis: p = 1, the sum of magnitudes, or 2."""
    data, order = node.symbol(0), node.integer("p", 2)
    axis = node.axis(node.integer("axis", -1), data.type.rank)
    if order == 2:
        return length_normalized(node, data, axis, NO_EPS)
    if order != 1:
        raise node.unsupported("attribute p", order, "1 or 2")
    magnitudes = node.apply(Abs(), [data], "magnitudes")
    total = node.apply(Sum(axis=(axis,), keepdims=True), [magnitudes], "sum")
    return node.apply(BroadcastDiv(), [data, node.apply(MaximumScalar(NO_EPS), [total], "length")])


@converter("LRN")
def local_response_normalization(node: Node) -> Symbol:
    """Over `size` channels; of an even number one more after the channel than before it."""
    data, size = node.symbol(0), node.integer("size", 0)
    if size < 1:
        raise GraphError(f"{node.label}: attribute size is {size}; 1 or more is needed")
    alpha, beta, bias = node.number("alpha", 1e-4), node.number("beta", 0.75), node.number("bias", 1.0)
    return locally_normalized(node, data, ((size - 1) // 2, size // 2), alpha / size, beta, bias)
