"""Writes the bias of a layer as a broadcast_add of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.preparation.channels import along, layer_of, output_channel_axis
from mrt.preparation.constants import add_constant
from mrt.symbol import Graph, GraphBuilder, Property, RewritePass, Symbol


def _layers_with_bias(graph: Graph) -> str:
    for symbol in graph.operators:
        operator = layer_of(symbol)
        if operator is not None and not operator.no_bias and graph.value(symbol.inputs[2]) is not None:
            return f"{symbol.name} ({symbol.op})"
    return ""


BIAS_SEPARATED = Property("no layer adds a constant bias", _layers_with_bias)


@dataclass(frozen=True)
class SeparateBias(RewritePass):
    """Convolution, Deconvolution and FullyConnected keep their product only.

    1. A bias of zeros: no_bias.
    2. Any other: no_bias, then broadcast_add with the bias as a parameter of the output's rank, such as (1, O, 1, 1).
       The sum keeps the layer's name; the product is called NAME_product.

    A bias that is no parameter is left alone.
    """

    ensures = (BIAS_SEPARATED,)

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        operator, axis = layer_of(symbol), output_channel_axis(symbol)
        if operator is None or axis is None or operator.no_bias:
            return None
        bias = builder.value(inputs[2])
        if bias is None:
            return "its bias is not a parameter"
        product = operator.with_bias(False)
        if not np.any(bias):
            return builder.apply(product, inputs[:2], symbol.name)
        layer = builder.apply(product, inputs[:2], f"{symbol.name}_product")
        return add_constant(builder, layer, along(bias, axis, symbol.type.rank), symbol.name, f"{symbol.name}_bias")
