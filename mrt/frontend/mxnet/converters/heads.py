"""What stands at the end of a network for training: each becomes what it computes in use, whatever its labels."""

from __future__ import annotations

import math

from mrt.frontend.mxnet.node import Node, converter
from mrt.frontend.shared.shaping import reshaped
from mrt.symbol import Symbol
from mrt.symbol.operators.activation import Sigmoid
from mrt.symbol.operators.normalization import Softmax

_DATA = (
    "LinearRegressionOutput",
    "MAERegressionOutput",
    "SVMOutput",
    "MakeLoss",
    "make_loss",
    "IdentityAttachKLSparseReg",
)
_SOFTMAXES = ("SoftmaxOutput", "Softmax")

HEADS = frozenset({*_DATA, *_SOFTMAXES, "LogisticRegressionOutput"})
"""Operators of which only the first input matters in use; the others are labels and statistics."""


@converter(*_DATA)
def data(node: Node) -> Symbol:
    return node.symbol(0)


@converter("LogisticRegressionOutput")
def sigmoid(node: Node) -> Symbol:
    return node.apply(Sigmoid(), [node.symbol(0)])


@converter(*_SOFTMAXES)
def softmax(node: Node) -> Symbol:
    """Over axis 1 with multi_output, over the last axis with preserve_shape, else over all axes but the first."""
    if node.flag("multi_output"):
        return node.apply(Softmax(axis=1), [node.symbol(0)])
    if node.flag("preserve_shape"):
        return node.apply(Softmax(axis=-1), [node.symbol(0)])
    return _over_all_but_the_first(node)


@converter("SoftmaxActivation")
def softmax_activation(node: Node) -> Symbol:
    """Over axis 1 in the mode channel, else over all axes but the first."""
    mode = node.text("mode", "instance")
    if mode not in ("instance", "channel"):
        raise node.unsupported("attribute mode", mode, "instance or channel")
    if mode == "channel":
        return node.apply(Softmax(axis=1), [node.symbol(0)])
    return _over_all_but_the_first(node)


def _over_all_but_the_first(node: Node) -> Symbol:
    scores = node.symbol(0)
    if scores.type.rank <= 2:
        return node.apply(Softmax(axis=-1), [scores])
    rows = reshaped(node, scores, (scores.shape[0], math.prod(scores.shape[1:])), "rows")
    return reshaped(node, node.apply(Softmax(axis=-1), [rows], "softmax"), scores.shape)
