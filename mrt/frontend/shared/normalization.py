"""Normalisation that the operators do not have: over several or any axes, in groups, over neighbouring channels."""

from __future__ import annotations

import math

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.node import ModelNode
from mrt.frontend.shared.shaping import reshaped
from mrt.symbol import Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.elementwise import ElemwiseMul
from mrt.symbol.operators.functions import PowerScalar, Square
from mrt.symbol.operators.instance_normalization import InstanceNorm, L2Normalization
from mrt.symbol.operators.normalization import LayerNorm
from mrt.symbol.operators.transform import ExpandDims, Squeeze, Transpose


def layer_normalized(
    node: ModelNode, data: Symbol, axis: int, gamma: Symbol, beta: Symbol, eps: float, suffix: str = ""
) -> Symbol:
    """`data` normalized over all axes from `axis` on; several of them are made one and taken apart again.

    gamma and beta are vectors with an entry for each normalized element.
    """
    merged = reshaped(node, data, (*data.shape[:axis], math.prod(data.shape[axis:])), "merged")
    operator = LayerNorm(axis=-1, eps=eps)
    normalized = node.apply(operator, [merged, gamma, beta], "layer" if merged is not data else suffix)
    return reshaped(node, normalized, data.shape, suffix)


def length_normalized(node: ModelNode, data: Symbol, axis: int, eps: float, suffix: str = "") -> Symbol:
    """x / sqrt(sum of x^2 + eps) along one axis, which is brought to place 1: L2Normalization sums over that."""
    rank = data.type.rank
    operator = L2Normalization(eps=eps, mode="channel")
    if axis == 1:
        return node.apply(operator, [data], suffix)
    if rank == 1:
        row = node.apply(ExpandDims(axis=0), [data], "row")
        return node.apply(Squeeze(axis=(0,)), [node.apply(operator, [row], "length_one")], suffix)
    order = list(range(rank))
    order[1], order[axis] = axis, 1
    moved = node.apply(Transpose(axes=tuple(order)), [data], "moved")
    return node.apply(Transpose(axes=tuple(order)), [node.apply(operator, [moved], "length_one")], suffix)


def rms_normalized(node: ModelNode, data: Symbol, axis: int, eps: float, weight: Symbol) -> Symbol:
    """weight x / sqrt(mean of x^2 + eps) over all axes from `axis` on, which have n elements.

    That is sqrt(n) weight x / sqrt(sum of x^2 + n eps); the vector given is sqrt(n) weight.
    """
    size = math.prod(data.shape[axis:])
    merged = reshaped(node, data, (*data.shape[:axis], size), "merged")
    normalized = length_normalized(node, merged, axis, size * eps, "normalized")
    scaled = node.apply(BroadcastMul(), [normalized, weight], "" if merged is data else "scaled")
    return reshaped(node, scaled, data.shape)


def group_normalized(
    node: ModelNode, data: Symbol, groups: int, gamma: Symbol, beta: Symbol, eps: float, suffix: str = ""
) -> Symbol:
    """gamma (x - mean) / sqrt(variance + eps) + beta of data (N, C, ...), moments over each of `groups` equal parts of
    the channels; gamma and beta (C,).

    InstanceNorm of the groups as channels, then scale and shift of the channels themselves. GraphError where the parts
    are not equal.
    """
    if data.type.rank < 2 or groups < 1 or data.shape[1] % groups:
        raise GraphError(f"{node.label}: num_groups {groups} does not divide the channels of {data.type}")
    batch, channels = data.shape[:2]
    merged = reshaped(node, data, (batch, groups, data.type.size // (batch * groups)), "groups")
    ones, zeros = node.parameter(np.ones(groups), "ones"), node.parameter(np.zeros(groups), "zeros")
    normalized = node.apply(InstanceNorm(eps=eps), [merged, ones, zeros], "normalized")
    apart = reshaped(node, normalized, data.shape, "apart")
    column = (channels, *(1,) * (data.type.rank - 2))
    scaled = node.apply(BroadcastMul(), [apart, reshaped(node, gamma, column, "gamma_column")], "scaled")
    return node.apply(BroadcastAdd(), [scaled, reshaped(node, beta, column, "beta_column")], suffix)


def locally_normalized(
    node: ModelNode, data: Symbol, window: tuple[int, int], alpha: float, beta: float, bias: float, suffix: str = ""
) -> Symbol:
    """Y[n, c] = X[n, c] (bias + alpha Σ X[n, i]²)^-beta, over the channels i around c.

    window: how many channels before and after c. The sum in brackets is a convolution of the squares with a kernel of
    one element, its weight a band of alpha, its bias the bias. Krizhevsky et al., ImageNet Classification with Deep
    Convolutional Neural Networks, section 3.3.
    """
    spatial = data.type.rank - 2
    if not 1 <= spatial <= 3 or min(window) < 0:
        raise GraphError(f"{node.label}: data is {data.type}, window {window}; rank 3 to 5 and a size are needed")
    channels, _ = node.made((data.shape[1], data.shape[1]))
    offset = np.arange(channels) - np.arange(channels)[:, None]
    band = ((-window[0] <= offset) & (offset <= window[1])) * alpha
    weight = node.parameter(band.reshape(channels, channels, *(1,) * spatial), "band")
    biases = node.parameter(np.full(channels, bias), "bias")
    squares = node.apply(Square(), [data], "squares")
    operator = Convolution(kernel=(1,) * spatial, num_filter=channels)
    energy = node.apply(operator, [squares, weight, biases], "energy")
    factor = node.apply(PowerScalar(-beta), [energy], "factor")
    return node.apply(ElemwiseMul(), [data, factor], suffix)
