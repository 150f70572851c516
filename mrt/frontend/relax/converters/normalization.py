"""Normalisation: batch_norm in inference, layer_norm, instance_norm and their like, softmax."""

from __future__ import annotations

import math

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.relax.node import Node, converter
from mrt.frontend.shared.node import Value
from mrt.frontend.shared.normalization import rms_normalized
from mrt.frontend.tvm import normalization
from mrt.symbol import Symbol

converter("nn.softmax", "nn.log_softmax")(normalization.softmax)


@converter("nn.batch_norm")
def batch_norm(node: Node) -> Value:
    if node.flag("training"):
        raise node.unsupported("attribute training", "True", "False, which is inference,")
    return normalization.batch_norm(node)


@converter("nn.instance_norm")
def instance_norm(node: Node) -> Symbol:
    return normalization.instance_norm(node, _channel_axis(node))


@converter("nn.group_norm")
def group_norm(node: Node) -> Symbol:
    return normalization.group_norm(node, _channel_axis(node))


@converter("nn.layer_norm")
def layer_norm(node: Node) -> Symbol:
    """Normalises over the last axis, or several last ones."""
    return normalization.layer_norm(node, _first_of_last_axes(node, node.symbol(0)))


@converter("nn.rms_norm")
def rms_norm(node: Node) -> Symbol:
    """weight x / sqrt(mean of x^2 + epsilon) over the last axis, or several last ones."""
    data = node.symbol(0)
    first = _first_of_last_axes(node, data)
    size = math.prod(data.shape[first:])
    if math.prod(node.shape(1)) != size:
        raise GraphError(f"{node.label}: weight has shape {node.shape(1)}; {size} elements are needed")
    weight = node.parameter_of(1, "weight", "times_root", lambda value: value.reshape(-1) * np.sqrt(np.float64(size)))
    return rms_normalized(node, data, first, node.number("epsilon"), weight)


def _channel_axis(node: Node) -> int:
    """The axis of the channels; UnsupportedOperatorError where the axes normalised over are not all others."""
    data = node.symbol(0)
    rank = data.type.rank
    channel = node.axis(node.integer("channel_axis"), rank)
    others = tuple(axis for axis in range(1, rank) if axis != channel)
    if channel == 0 or node.axes("axes", rank) != others:
        raise node.unsupported(
            "attribute axes",
            f"{node.axes('axes', rank)} on {data.type} with channels along axis {channel}",
            "all axes but the first and the channels'",
        )
    return channel


def _first_of_last_axes(node: Node, data: Symbol) -> int:
    """The first of the axes that are normalised over, which must be the last ones."""
    axes = node.axes("axes", data.type.rank)
    if axes != tuple(range(data.type.rank - len(axes), data.type.rank)):
        raise node.unsupported("attribute axes", f"{axes} on {data.type}", "the last axis, or several last ones,")
    return axes[0]
