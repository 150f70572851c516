"""The whole of a quantized model as one graph: real inputs quantized, integers between, outputs dequantized."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType
from mrt.symbol.operators.integer import Dequantize, Quantize
from mrt.symbol.quantized_tensor import TensorQuantization


def with_real_ends(
    graph: Graph,
    inputs: Sequence[TensorQuantization],
    outputs: Sequence[TensorQuantization],
    postprocess: Graph | None,
) -> Graph:
    """From float32 inputs to float32 outputs, the float tail included; inputs that are given as integers stay so."""
    builder = GraphBuilder()
    values: dict[Symbol, Symbol] = {}
    for symbol, entry in zip(graph.inputs, inputs, strict=True):
        if entry.is_given:
            values[symbol] = builder.input(entry.name, symbol.type)
            continue
        real = builder.input(entry.name, TensorType(symbol.shape, "float32"))
        scale = builder.parameter(f"{entry.name}_scale", entry.scale.astype(np.float32))
        operator = Quantize(a_min=entry.lo, a_max=entry.hi, dtype=entry.dtype, zero_point=entry.zero_point)
        values[symbol] = builder.apply(operator, [real, scale], f"{entry.name}_quantized")
    integers = _repeated(graph, values, builder)
    found = []
    for symbol, entry in zip(integers, outputs, strict=True):
        scale = builder.parameter(f"{entry.name}_scale", entry.scale)
        dequantize = Dequantize(zero_point=entry.zero_point)
        found.append(builder.apply(dequantize, [symbol, scale], f"{entry.name}_real"))
    if postprocess is None:
        return builder.graph(found)
    return builder.graph(_repeated(postprocess, dict(zip(postprocess.inputs, found, strict=True)), builder))


def _repeated(graph: Graph, values: dict[Symbol, Symbol], builder: GraphBuilder) -> list[Symbol]:
    """The outputs of `graph` built anew on `values`, its inputs."""
    for symbol in graph.symbols:
        if symbol in values:
            continue
        value = graph.value(symbol)
        if value is not None:
            values[symbol] = builder.parameter(symbol.name, value)
        else:
            inputs = [values[source] for source in symbol.inputs]
            values[symbol] = builder.apply(symbol.operator, inputs, symbol.name)
    return [values[symbol] for symbol in graph.outputs]
