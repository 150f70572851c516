"""Folds batch normalisation, and any multiplication or addition per channel, into the layer before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.preparation.channels import along, output_channel_axis, per_channel, scale_and_shift
from mrt.preparation.constants import (
    add_constant,
    feeds_only_one,
    multiply_by_constant,
    operation_with_constant,
    representable,
)
from mrt.symbol import Array, Graph, GraphBuilder, Property, RewritePass, Symbol
from mrt.symbol.operation import Operation
from mrt.symbol.operators.normalization import BatchNorm
from mrt.symbol.places import before_moves
from mrt.symbol.types import normalize_axis


def _constant_batch_norms(graph: Graph) -> str:
    for symbol in graph.operators:
        is_constant = all(graph.value(source) is not None for source in symbol.inputs[1:])
        if is_constant and isinstance(symbol.operator, BatchNorm):
            return f"{symbol.name} ({symbol.op})"
    return ""


@dataclass(frozen=True)
class FoldBatchNorm(RewritePass):
    """Folds what acts per output channel on a Convolution, Deconvolution or FullyConnected into its weights and bias.

    Y = (X - mean) gamma / sqrt(var + eps) + beta = X factor + summand, with
    factor = gamma / sqrt(var + eps) and summand = beta - mean factor; gamma is 1 under fix_gamma.

    1. BatchNorm over the output channels of a layer that nothing else reads: into the layer.
    2. Any other BatchNorm: broadcast_mul and broadcast_add with constants along its axis.
    3. broadcast_mul and broadcast_add with one constant per output channel of a layer that nothing else reads, or with
       one constant in all: into the layer.

    Reshapes and transposes may stand behind the layer, and stay there: a constant goes to the channels from which what
    it is for has come, so that heads may be split and channels shuffled between.
    A BatchNorm whose gamma, beta, mean or variance is no parameter is left alone.
    """

    ensures = (Property("no batch normalisation by parameters", _constant_batch_norms),)

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if isinstance(symbol.operator, BatchNorm):
            return _rewrite_batch_norm(graph, symbol, symbol.operator, inputs, builder)
        if operation_with_constant(symbol) is not None:
            return _rewrite_constant(graph, symbol, inputs, builder)
        return None


def _rewrite_batch_norm(
    graph: Graph, symbol: Symbol, operator: BatchNorm, inputs: tuple[Symbol, ...], builder: GraphBuilder
) -> Symbol | str:
    data = inputs[0]
    values = [builder.value(source) for source in inputs[1:]]
    parameters = [value.astype(np.float64) for value in values if value is not None]
    if len(parameters) != len(values):
        return "its gamma, beta, mean or variance is not a parameter"
    gamma, beta, mean, variance = parameters
    with np.errstate(all="ignore"):
        factor = (np.ones_like(gamma) if operator.fix_gamma else gamma) / np.sqrt(variance + operator.eps)
        summand = beta - mean * factor
    if not representable(factor, symbol.dtype) or not representable(summand, symbol.dtype):
        return "its variance is negative, or is 0 without an eps, or its factors overflow"
    axis = normalize_axis(operator.axis, symbol.type.rank)
    factor, summand = (along(vector, axis, symbol.type.rank) for vector in (factor, summand))
    moved = Moved.of(graph, symbol, data)
    factors, summands = moved.per_channel(factor), moved.per_channel(summand)
    if factors is not None and summands is not None and not moved.is_shared:
        folded = moved.scaled_and_shifted(factors, summands, symbol.name, builder)
        if isinstance(folded, Symbol):
            return folded
    scaled = multiply_by_constant(builder, data, factor, f"{symbol.name}_scaled", f"{symbol.name}_factor")
    return add_constant(builder, scaled, summand, symbol.name, f"{symbol.name}_summand")


def _rewrite_constant(
    graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
) -> Symbol | str | None:
    """Rule 3."""
    moved, value = Moved.of(graph, symbol, inputs[0]), builder.value(inputs[1])
    if not moved.has_layer or value is None or symbol.type != inputs[0].type or value.ndim != symbol.type.rank:
        return None
    if moved.is_shared:
        return f"{symbol.inputs[0].name} is also read by others"
    vector = moved.per_channel(value)
    if vector is None:
        return f"its constant varies within an output channel of {moved.layer.name}"
    if operation_with_constant(symbol) is Operation.MULTIPLY:
        return moved.scaled_and_shifted(vector, None, symbol.name, builder)
    return moved.scaled_and_shifted(None, vector, symbol.name, builder)


@dataclass(frozen=True)
class Moved:
    """What a layer gives, moved to other places by operators behind it, the first of them first.

    layer: a Convolution, Deconvolution or FullyConnected; any other symbol where there is none. is_shared: whether
    anything else reads the layer, or what is moved, on the way.
    """

    layer: Symbol
    movers: tuple[Symbol, ...]
    is_shared: bool

    @classmethod
    def of(cls, graph: Graph, reader: Symbol, data: Symbol) -> Moved:
        """Of the first input of a symbol of `graph`, which has become `data`."""
        movers: list[Symbol] = []
        made = reader.inputs[0]
        is_shared = not feeds_only_one(graph, made)
        while data.operator.keeps_elements:
            movers, data = [data, *movers], data.inputs[0]
            if made.operator.keeps_elements:  # else it has become a layer that only these movers read
                made = made.inputs[0]
                is_shared = is_shared or not feeds_only_one(graph, made)
        return cls(data, tuple(movers), is_shared)

    @property
    def has_layer(self) -> bool:
        return output_channel_axis(self.layer) is not None

    def per_channel(self, value: Array) -> Array | None:
        """A constant of the rank of what is moved as float64 numbers, one for each output channel of the layer; None
        where two elements of a channel would get others, or there is no layer."""
        axis = output_channel_axis(self.layer)
        if axis is None:
            return None
        channels = self.layer.shape[axis]
        if value.size == 1:
            return np.full(channels, value.reshape(()), np.float64)
        if not self.movers:
            return per_channel(value, axis, channels)
        return before_moves(value.astype(np.float64), self.movers, axis)

    def scaled_and_shifted(
        self, factor: Array | None, summand: Array | None, name: str, builder: GraphBuilder
    ) -> Symbol | str:
        """`scale_and_shift` of the layer, moved as it was, called `name`."""
        called, *names = [*(each.name for each in (self.layer, *self.movers)[:-1]), name]
        found = scale_and_shift(self.layer, factor, summand, called, builder)
        if isinstance(found, Symbol):
            for each, called in zip(self.movers, names, strict=True):
                found = builder.apply(each.operator, [found], called)
        return found
