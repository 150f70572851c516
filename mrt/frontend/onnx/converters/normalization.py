"""Normalisation: BatchNormalization in inference, LayerNormalization, Softmax, LogSoftmax."""

from __future__ import annotations

import math

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.onnx.node import Node, converter
from mrt.frontend.shared.normalization import layer_normalized, rms_normalized
from mrt.frontend.shared.shaping import reshaped
from mrt.symbol import Symbol
from mrt.symbol.operators.broadcast import BroadcastSub
from mrt.symbol.operators.functions import Rsqrt, Square
from mrt.symbol.operators.normalization import BatchNorm, LogSoftmax, Softmax
from mrt.symbol.operators.reduce import Mean
from mrt.symbol.operators.scalar import PlusScalar


@converter("BatchNormalization")
def batch_normalization(node: Node) -> Symbol | tuple[Symbol, ...]:
    operator = BatchNorm(eps=node.number("epsilon", 1e-5), fix_gamma=False)
    if node.integer("training_mode", 0):
        return _by_own_moments(node, operator)
    return node.apply(operator, [node.symbol(index) for index in range(5)])


def _by_own_moments(node: Node, operator: BatchNorm) -> tuple[Symbol, ...]:
    """Normalises by the moments of the data itself, which must be constant, such as weights that are standardised.

    The other outputs are the running moments, of which the given ones count `momentum` times.
    """
    if not node.is_known(0):
        raise node.unsupported("attribute training_mode", 1, "0, which is inference, or constant data")
    data = node.known(0, "data")
    axes = tuple(axis for axis in range(data.ndim) if axis != 1)
    mean = node.parameter_of(0, "data", "mean", lambda value: value.mean(axis=axes))
    variance = node.parameter_of(0, "data", "variance", lambda value: value.var(axis=axes))
    normalized = node.apply(operator, [*(node.symbol(index) for index in range(3)), mean, variance])
    if len(node.proto.output) < 2:
        return (normalized,)
    kept = node.number("momentum", 0.9)
    means = node.known(3, "the running mean") * kept + data.mean(axis=axes) * (1 - kept)
    variances = node.known(4, "the running variance") * kept + data.var(axis=axes) * (1 - kept)
    running = (node.parameter(means, "running_mean"), node.parameter(variances, "running_variance"))
    return (normalized, *running)[: len(node.proto.output)]


@converter("LayerNormalization")
def layer_normalization(node: Node) -> tuple[Symbol, ...]:
    """Normalises over all axes from `axis` on; the other outputs are the mean and 1 / sqrt(variance + epsilon)."""
    data = node.symbol(0)
    epsilon = node.number("epsilon", 1e-5)
    axis = node.axis(node.integer("axis", -1), data.type.rank)
    shape = data.shape[axis:]
    gamma = _per_element(node, 1, shape, "gamma")
    beta = _per_element(node, 2, shape, "beta") if node.has(2) else node.parameter(np.zeros(math.prod(shape)), "beta")
    normalized = layer_normalized(node, data, axis, gamma, beta, epsilon)
    if len(node.proto.output) < 2:
        return (normalized,)
    moment = Mean(axis=tuple(range(axis, data.type.rank)), keepdims=True)
    mean = node.apply(moment, [data], "mean")
    squares = node.apply(Square(), [node.apply(BroadcastSub(), [data, mean], "centred")], "squares")
    shifted = node.apply(PlusScalar(epsilon), [node.apply(moment, [squares], "variance")], "shifted")
    return (normalized, mean, node.apply(Rsqrt(), [shifted], "inverse"))[: len(node.proto.output)]


@converter("RMSNormalization")
def rms_normalization(node: Node) -> Symbol:
    """scale x / sqrt(mean of x^2 + epsilon) over all axes from `axis` on."""
    data = node.symbol(0)
    axis = node.axis(node.integer("axis", -1), data.type.rank)
    weight = _per_element(node, 1, data.shape[axis:], "scale", math.sqrt(math.prod(data.shape[axis:])))
    return rms_normalized(node, data, axis, node.number("epsilon", 1e-5), weight)


def _per_element(node: Node, index: int, shape: tuple[int, ...], role: str, factor: float = 1.0) -> Symbol:
    """Scale or shift, times a factor, as a vector with an entry for each normalised element."""
    found = node.known(index, role).shape
    if found == shape and len(shape) == 1 and factor == 1:
        return node.symbol(index)
    try:
        np.broadcast_to(np.empty(found), shape)
    except ValueError:
        raise GraphError(f"{node.label}: {role} has shape {found}; {shape} is needed") from None
    kind = f"over_{'x'.join(map(str, shape))}" + (f"_times_{factor!r}" if factor != 1 else "")
    times = np.float64(factor)
    return node.parameter_of(
        index, role, kind, lambda v: np.broadcast_to(v if factor == 1 else v * times, shape).reshape(-1)
    )


_SOFTMAXES = {"Softmax": Softmax, "LogSoftmax": LogSoftmax}


@converter(*_SOFTMAXES)
def softmax(node: Node) -> Symbol:
    """Softmax or its logarithm over one axis; before opset 13 over all axes from `axis` (then 1 by default) on."""
    data, record = node.symbol(0), _SOFTMAXES[node.operator]
    rank = data.type.rank
    if node.opset >= 13:
        return node.apply(record(axis=node.axis(node.integer("axis", -1), rank)), [data])
    axis = node.axis(node.integer("axis", 1), rank)
    if all(size == 1 for size in data.shape[axis + 1 :]):
        return node.apply(record(axis=axis), [data])
    merged = reshaped(node, data, (*data.shape[:axis], math.prod(data.shape[axis:])), "merged")
    return reshaped(node, node.apply(record(axis=-1), [merged], "softmax"), data.shape)
