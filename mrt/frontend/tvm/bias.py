"""Relax convolutions and matrix products have no bias: the constant that is added to one becomes its bias."""

from __future__ import annotations

from mrt.symbol import Array, Graph, GraphBuilder, Symbol
from mrt.symbol.builder import rewrite_graph
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.layer import Layer


def merge_biases(graph: Graph) -> Graph:
    """The graph with each sum of a convolution or matrix product and a constant per output channel made one symbol.

    A product that something else reads too, or that has a bias already, stays as it is.
    """

    def rewrite(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
        if not isinstance(symbol.operator, BroadcastAdd):
            return None
        for product, constant, new_product in zip(symbol.inputs, symbol.inputs[::-1], inputs, strict=True):
            value = graph.value(constant)
            if value is None or product in graph.outputs or graph.consumers[product] != (symbol,):
                continue
            bias = _bias(product, value)
            operator = product.operator
            if bias is not None and isinstance(operator, Layer):
                parameter = builder.parameter(f"{symbol.name}_bias", bias)
                return builder.apply(operator.with_bias(True), [*new_product.inputs, parameter], symbol.name)
        return None

    return rewrite_graph(graph, rewrite)


def _bias(product: Symbol, value: Array) -> Array | None:
    """The constant as a bias of the product, None where it is no bias of it."""
    operator, axis = product.operator, product.channel_axis
    if not isinstance(operator, Layer) or not operator.no_bias or axis is None:
        return None
    channels = product.shape[axis]
    aligned = (1,) * (product.type.rank - value.ndim) + value.shape
    per_channel = tuple(channels if place == axis else 1 for place in range(product.type.rank))
    return value.reshape(channels) if aligned == per_channel else None
