"""Normalisation, where an attribute or an input stands for more than the record knows."""

from __future__ import annotations

from mrt.errors import GraphError
from mrt.frontend.mxnet.node import Node, converter
from mrt.frontend.shared.normalization import locally_normalized
from mrt.symbol import Symbol
from mrt.symbol.operators.scalar import MulScalar

_STATISTICS = ("moving_mean", "moving_var")


@converter("BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm")
def batch_norm(node: Node) -> Symbol:
    """In use it has the statistics of training, which are no inputs in files before MXNet 0.9."""
    inputs = node.symbols()
    if len(inputs) == 3:
        inputs += [node.auxiliary(role) for role in _STATISTICS]
    # What a synchronized one has besides says who trains together.
    return node.apply(node.record("BatchNorm", ndev=None, key=None), inputs)


@converter("softmax", "log_softmax")
def softmax(node: Node) -> Symbol:
    _check_whole_length(node)
    return node.apply(node.record(), [node.only_symbol()])


@converter("softmin")
def softmin(node: Node) -> Symbol:
    """The softmax of the negated data."""
    _check_whole_length(node)
    negated = node.apply(MulScalar(-1.0), [node.only_symbol()], "negated")
    return node.apply(node.record("softmax"), [negated])


def _check_whole_length(node: Node) -> None:
    if node.flag("use_length"):
        raise node.unsupported("attribute use_length", "True", "False")


@converter("LRN")
def local_response_normalization(node: Node) -> Symbol:
    """Over `nsize` channels, the channel itself in their middle."""
    data, size = node.only_symbol(), node.integer("nsize")
    if data.type.rank != 4 or size < 1 or size % 2 == 0:
        raise GraphError(f"{node.label}: data is {data.type}, nsize {size}; rank 4 and an odd size are needed")
    alpha, beta, bias = node.number("alpha", 1e-4), node.number("beta", 0.75), node.number("knorm", 2.0)
    return locally_normalized(node, data, (size // 2, size // 2), alpha / size, beta, bias)
