"""Normalisation: batch_norm in inference, layer_norm, instance_norm and their like, softmax."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.relay.node import Node, converter
from mrt.frontend.shared.channels_first import reordered, transposed
from mrt.frontend.shared.normalization import length_normalized, locally_normalized
from mrt.frontend.tvm import normalization
from mrt.symbol import Symbol

_LARGEST_EPSILON = 1e-5

converter("nn.softmax", "nn.log_softmax")(normalization.softmax)
converter("nn.batch_norm")(normalization.batch_norm)


@converter("nn.instance_norm")
def instance_norm(node: Node) -> Symbol:
    return normalization.instance_norm(node, _channel_axis(node))


@converter("nn.group_norm")
def group_norm(node: Node) -> Symbol:
    return normalization.group_norm(node, _channel_axis(node))


def _channel_axis(node: Node) -> int:
    rank = len(node.shape(0))
    axis = node.axis(node.integer("axis"), rank)
    if axis == 0 or rank < 3:
        raise node.unsupported(
            "attribute axis", f"{axis} of {rank} axes", "an axis after the batch, and one beside it,"
        )
    return axis


@converter("nn.layer_norm")
def layer_norm(node: Node) -> Symbol:
    """Normalises over one axis, which is brought to the end and back."""
    data = node.symbol(0)
    rank = data.type.rank
    axis = node.axis(node.integer("axis"), rank)
    size = data.shape[axis]
    gamma = node.input(1) if node.flag("scale") else np.ones(size, np.float32)
    beta = node.input(2) if node.flag("center") else np.zeros(size, np.float32)
    if axis == rank - 1:
        return normalization.layer_norm(replace(node, inputs=(data, gamma, beta)), axis)
    order = [*(place for place in range(rank) if place != axis), axis]
    moved = replace(node, inputs=(transposed(node, data, order, "moved"), gamma, beta), name=f"{node.name}_normalized")
    return transposed(node, normalization.layer_norm(moved, rank - 1), np.argsort(order).tolist())


@converter("nn.l2_normalize")
def l2_normalize(node: Node) -> Symbol:
    """x / sqrt(max(sum of x^2, eps)) along one axis, as x / sqrt(sum of x^2 + eps), whose eps is small."""
    data, axes = node.symbol(0), node.sizes("axis")
    eps = node.number("eps")
    if len(axes) != 1:
        raise node.unsupported("attribute axis", axes, "one axis")
    if not 0 <= eps <= _LARGEST_EPSILON:
        raise node.unsupported("attribute eps", eps, f"0 to {_LARGEST_EPSILON}")
    if not data.type.rank:
        raise GraphError(f"{node.label}: data is {data.type}; rank 1 or more is needed")
    return length_normalized(node, data, node.axis(axes[0], data.type.rank), eps)


@converter("nn.lrn")
def local_response_normalization(node: Node) -> Symbol:
    """Over `size` neighbours along one axis, the element itself in their middle; alpha is divided by the size."""
    data, size = node.symbol(0), node.integer("size")
    rank = data.type.rank
    axis = node.axis(node.integer("axis"), rank)
    if size < 1 or size % 2 == 0 or axis == 0:
        raise node.unsupported("attributes size and axis", (size, axis), "an odd size, and an axis after the batch,")
    alpha, beta, bias = node.number("alpha") / size, node.number("beta"), node.number("bias")
    order = [0, axis, *(place for place in range(1, rank) if place != axis)]
    moved = transposed(node, data, order, "channels_second")

    def make(suffix: str) -> Symbol:
        return locally_normalized(node, moved, (size // 2, size // 2), alpha, beta, bias, suffix)

    return reordered(node, np.argsort(order).tolist(), make)
