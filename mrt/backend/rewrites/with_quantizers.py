"""The whole of a quantized model as one graph: real inputs quantized, integers between, outputs dequantized."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType
from mrt.symbol.operators.integer import Dequantize, Quantize
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.symbol.states import places_behind, states_of
from mrt.symbol.types import narrowest_dtype


def with_quantizers(
    graph: Graph,
    inputs: Sequence[TensorQuantization],
    outputs: Sequence[TensorQuantization],
    postprocess: Graph | None,
    integer_states: bool = False,
) -> Graph:
    """From float32 inputs to float32 outputs, the float tail included; inputs that are given as integers stay so.

    The operators of `graph` keep their names, by which their bounds are known. integer_states: whether states are
    taken and given as integers, too.
    """
    states = states_of(graph) if integer_states else ()
    as_integers = {state.input for state in states}
    builder = GraphBuilder()
    values: dict[Symbol, Symbol] = {}
    for symbol, entry in zip(graph.inputs, inputs, strict=True):
        if entry.is_given or symbol in as_integers:
            values[symbol] = builder.input(entry.name, symbol.type)
            continue
        real = builder.input(entry.name, TensorType(symbol.shape, "float32"))
        scale = builder.parameter(_free(f"{entry.name}_scale", graph), entry.scale.astype(np.float32))
        zero_point = _zero_point(entry, builder, graph)
        operator = Quantize(
            a_min=entry.lo,
            a_max=entry.hi,
            dtype=entry.dtype,
            rounding=entry.rounding,
            zero_point_first=entry.zero_point_first,
        )
        name = _free(f"{entry.name}_quantized", graph)
        values[symbol] = builder.apply(operator, [real, scale, zero_point], name)
    integers = _repeated(graph, values, builder)
    found = []
    for symbol, entry in zip(integers, outputs, strict=True):
        scale = builder.parameter(f"{entry.name}_scale", entry.scale)
        found.append(
            builder.apply(Dequantize(), [symbol, scale, _zero_point(entry, builder, graph)], f"{entry.name}_real")
        )
    if postprocess is not None:
        found = _repeated(postprocess, dict(zip(postprocess.inputs, found, strict=True)), builder)
    for state, place in zip(states, places_behind(states, postprocess), strict=True):
        found[place] = integers[state.place]
    return builder.graph(found)


def _zero_point(entry: TensorQuantization, builder: GraphBuilder, graph: Graph) -> Symbol:
    dtype = narrowest_dtype(entry.zero_point, entry.zero_point)
    return builder.parameter(_free(f"{entry.name}_zero_point", graph), np.asarray(entry.zero_point, dtype))


def _free(name: str, graph: Graph) -> str:
    """`name`, or one made from it that no symbol of the graph has."""
    while name in graph.by_name:
        name += "_end"
    return name


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
