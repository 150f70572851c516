"""A bias is an input of its convolution, whose sums then begin with it, where that stays within 32 bits."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mrt.backend.rewrites.known_bounds import Bounds
from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Graph, GraphBuilder, Interval, Symbol
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.transform import Reshape


@dataclass(frozen=True)
class BiasIntoSum(Rewrite):
    """Of Convolution Y and BroadcastAdd, in integers:

    1. Y(X, W) + b, with one constant b for each output channel, becomes Y(X, W, b).
    2. Y(X, W, b) becomes Y(X, W) + b where sums that begin with b might leave 32 bits on the way.
    """

    about = (Convolution, BroadcastAdd)

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if symbol.dtype != "int32":
            return None
        if isinstance(symbol.operator, Convolution) and len(inputs) == 3:
            return self._bias_after_sum(graph, symbol, inputs, builder)
        if not isinstance(symbol.operator, BroadcastAdd):
            return None
        layer, bias = symbol.inputs
        value, operator = graph.value(bias), layer.operator
        if not isinstance(operator, Convolution) or len(layer.inputs) != 2 or value is None:
            return None
        by_channel = (1, operator.num_filter, *(1,) * (symbol.type.rank - 2))
        if value.shape != by_channel:
            return f"what is added has shape {value.shape}; {by_channel}, one for each output channel, is needed"
        if graph.consumers[layer] != (symbol,) or layer in graph.outputs:
            return "what it is added to is read by others too"
        value, operator = value.reshape(-1), replace(operator, no_bias=False)
        if not _fits(operator, layer, Interval.constant(value), self.facts.bounds(graph)):
            return "a sum that begins with it might exceed 32 bits"
        flat = builder.parameter(f"{bias.name}_flat", value, bias.origin)
        return builder.apply(operator, [*inputs[0].inputs, flat], symbol.name, symbol.origin)

    def _bias_after_sum(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | None:
        """Case 2."""
        operator, bounds = symbol.operator, self.facts.bounds(graph)
        if not isinstance(operator, Convolution) or _fits(operator, symbol, bounds[symbol.inputs[2].name], bounds):
            return None
        data, weight, bias = inputs
        shape = (1, operator.num_filter, *(1,) * (symbol.type.rank - 2))
        sums = builder.apply(replace(operator, no_bias=True), [data, weight], f"{symbol.name}_sums", symbol.origin)
        value, name = graph.value(symbol.inputs[2]), f"{bias.name}_laid"
        shaped = (
            builder.apply(Reshape(shape), [bias], name, bias.origin)
            if value is None
            else builder.parameter(name, value.reshape(shape), bias.origin)
        )
        return builder.apply(BroadcastAdd(), [sums, shaped], symbol.name, symbol.origin)


def _fits(operator: Convolution, layer: Symbol, bias: Interval, bounds: Bounds) -> bool:
    """Whether every sum that begins with the bias stays within 32 bits, in any order.

    Bytes count as all that their dtype holds: a dot of bytes multiplies bytes of the other sign, which are moved by
    128, and begins with what takes that off, so that what is not added yet stands in the sum as such a byte.
    """
    data, weight = (bounds[source.name] for source in layer.inputs[:2])
    if np.dtype(layer.inputs[0].dtype).itemsize == 1:
        data = Interval.of(*DTYPE_RANGES[layer.inputs[0].dtype], data.shape)
    return all(interval.fits_int32 for interval in operator.intermediates(data, weight, bias))
