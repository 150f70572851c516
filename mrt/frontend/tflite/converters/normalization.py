"""Normalisation: SOFTMAX, its logarithm, L2_NORMALIZATION and LOCAL_RESPONSE_NORMALIZATION."""

from __future__ import annotations

from functools import partial

from mrt.errors import GraphError
from mrt.frontend.shared.normalization import length_normalized, locally_normalized
from mrt.frontend.tflite.activation import activated
from mrt.frontend.tflite.layouts import channels_last, channels_second, image
from mrt.frontend.tflite.node import Node, converter
from mrt.symbol import Symbol
from mrt.symbol.operators.normalization import LogSoftmax, Softmax
from mrt.symbol.operators.scalar import MulScalar


@converter("SOFTMAX")
def softmax(node: Node) -> Symbol:
    """Over the last axis, of the data times Beta."""
    data, beta = node.symbol(0), node.options("SoftmaxOptions").number("Beta")
    if beta != 1:
        data = node.apply(MulScalar(beta), [data], "scaled")
    return node.apply(Softmax(axis=-1), [data])


@converter("LOG_SOFTMAX")
def log_softmax(node: Node) -> Symbol:
    return node.apply(LogSoftmax(axis=-1), [node.symbol(0)])


_LEAST_LENGTH = 1e-6
"""TFLite divides by no less than this."""


@converter("L2_NORMALIZATION")
def l2_normalization(node: Node) -> Symbol:
    """x / sqrt(sum of x^2 + eps) over the last axis, where TFLite has the larger of the root and sqrt(eps)."""
    options, rank = node.options("L2NormOptions"), len(node.shape(0))

    if not rank:
        raise GraphError(f"{node.label}: data is one number; rank 1 or more is needed")

    def make(suffix: str) -> Symbol:
        if rank < 3:
            return length_normalized(node, node.symbol(0), rank - 1, _LEAST_LENGTH**2, suffix)
        data = channels_second(node)
        return length_normalized(node, data, 1, _LEAST_LENGTH**2, suffix)

    if rank < 3:
        return activated(node, options, make)
    return channels_last(node, rank, partial(activated, node, options, make))


@converter("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(node: Node) -> Symbol:
    """Over Radius channels before and after each."""
    options = node.options("LocalResponseNormalizationOptions")
    radius, data = options.integer("Radius"), image(node)
    alpha, beta, bias = (options.number(name) for name in ("Alpha", "Beta", "Bias"))

    def make(suffix: str) -> Symbol:
        return locally_normalized(node, data, (radius, radius), alpha, beta, bias, suffix)

    return channels_last(node, 4, make)
