"""Changing what a layer with weights gives, one factor and one summand per output channel."""

from __future__ import annotations

import numpy as np

from mrt.preparation.constants import representable
from mrt.symbol import Array, GraphBuilder, Symbol
from mrt.symbol.operators.layer import Layer


def layer_of(symbol: Symbol) -> Layer | None:
    """The record of a layer with weights, which is what passes that change weights and biases are about."""
    return symbol.operator if isinstance(symbol.operator, Layer) else None


def output_channel_axis(symbol: Symbol) -> int | None:
    """Which axis of the output counts the output channels of `symbol`; None if it is no layer with weights."""
    return symbol.channel_axis


def per_channel(value: Array, axis: int, channels: int) -> Array | None:
    """`value`, an operand of the output's rank, as `channels` numbers; None if it varies along another axis."""
    if value.size != value.shape[axis]:
        return None
    return np.broadcast_to(value.reshape(-1), (channels,)).astype(np.float64)


def along(vector: Array, axis: int, rank: int) -> Array:
    """A vector as an operand of rank `rank` that varies along `axis` only."""
    return vector.reshape(tuple(-1 if i == axis else 1 for i in range(rank)))


def scale_and_shift(
    layer: Symbol, factor: Array | None, summand: Array | None, name: str, builder: GraphBuilder
) -> Symbol | str:
    """`layer` with its weights and bias such that it gives `layer * factor + summand`, called `name`.

    W'[o] = W[o] factor[o], b'[o] = b[o] factor[o] + summand[o]. factor and summand: float64 vectors over the output
    channels, None for 1 and 0. Gives the reason where the weight or bias is no parameter or would not be finite.
    """
    operator, axis = layer_of(layer), output_channel_axis(layer)
    if operator is None or axis is None:
        return f"{layer.name} ({layer.op}) has no weights"
    data, *symbols = layer.inputs
    values = [builder.value(source) for source in symbols]
    parameters = [value.astype(np.float64) for value in values if value is not None]
    if len(parameters) != len(symbols):
        return f"the weight or bias of {layer.name} is not a parameter"
    weight = parameters[0]
    bias = np.zeros(layer.shape[axis]) if operator.no_bias else parameters[1]
    if factor is not None:
        rows = operator.rows(weight)
        weight = operator.from_rows(rows * along(factor, 0, rows.ndim))
        bias = bias * factor
    if summand is not None:
        bias = bias + summand
    if not representable(weight, layer.dtype) or not representable(bias, layer.dtype):
        return f"the weights of {layer.name} would not be finite"
    no_bias = operator.no_bias and summand is None
    inputs = [data, symbols[0]]
    if factor is not None:
        inputs[1] = builder.parameter(f"{name}_weight", weight.astype(layer.dtype))
    if not no_bias:
        inputs.append(builder.parameter(f"{name}_bias", bias.astype(layer.dtype)))
    return builder.apply(operator.with_bias(not no_bias), inputs, name)
