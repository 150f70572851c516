"""A bias is an input of its convolution, whose sums then begin with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mrt.symbol import Graph, GraphBuilder, Interval, RewritePass, Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.convolution import Convolution


@dataclass(frozen=True)
class EarlyBias(RewritePass):
    """Y(X, W) + b of integers, with one constant b for each output channel, becomes Y(X, W, b).

    bounds: of the graph given, by name.
    """

    bounds: Mapping[str, Interval] = field(compare=False)

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if not isinstance(symbol.operator, BroadcastAdd) or symbol.dtype != "int32":
            return None
        layer, bias = symbol.inputs
        value, operator = graph.value(bias), layer.operator
        if not isinstance(operator, Convolution) or len(layer.inputs) != 2 or value is None:
            return None
        if value.shape != (1, operator.num_filter, *(1,) * (symbol.type.rank - 2)):
            return None
        if graph.consumers[layer] != (symbol,) or layer in graph.outputs:
            return "what it is added to is read by others too"
        value, operator = value.reshape(-1), replace(operator, no_bias=False)
        known = [*(self.bounds[source.name] for source in layer.inputs), Interval.constant(value)]
        if not all(interval.fits_int32 for interval in operator.intermediates(*known)):
            return "a sum that begins with it might exceed 32 bits"
        flat = builder.parameter(f"{bias.name}_flat", value, bias.origin)
        return builder.apply(operator, [*inputs[0].inputs, flat], symbol.name, symbol.origin)
