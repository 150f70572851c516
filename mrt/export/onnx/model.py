"""An integer graph as an ONNX model of standard operators on integers only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx
from onnx import helper

from mrt.errors import ModelFileError
from mrt.export.description import describe
from mrt.export.onnx import exporters as _exporters
from mrt.export.onnx.node import Node, Scope, Value, check_covered, element_type, find_exporter
from mrt.export.registry import Exporter
from mrt.symbol import Graph, Interval, Symbol
from mrt.symbol.bounds import analyse_bounds
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.version import __version__

del _exporters

OPSET = 17
"""The version of ONNX's operators that models are written in."""
IR_VERSION = 8
"""The version of ONNX's files that came with this opset."""
MOST_BYTES = 2**31 - 1
"""The most bytes of one protobuf message, which an ONNX file is."""


def to_onnx(
    graph: Graph, inputs: Sequence[TensorQuantization], outputs: Sequence[TensorQuantization], digest: str
) -> onnx.ModelProto:
    """The ONNX model, of opset 17, that gives for the same integers the same integers as the integer `graph`.

    Inputs, outputs and symbols keep their names, shapes (the graph's own batch) and dtypes; an output that is an input,
    a parameter or stands twice gets a name made from its own. Every value is an integer of at most 32 bits, but for the
    lengths, axes and places that ONNX has in int64, and the booleans of comparisons. metadata_props holds what
    `describe` tells of the model.

    inputs, outputs: how the integers of the graph's inputs and outputs stand for real values, in their order.
    Raises UnsupportedOperatorError listing every operator that cannot be written, ModelFileError where the model
    would exceed the 2 GiB of an ONNX file.
    """
    check_covered(graph)
    intervals = analyse_bounds(graph, {entry.name: Interval.of(entry.lo, entry.hi, entry.shape) for entry in inputs})

    def description(names: Sequence[str]) -> dict[str, str]:
        named = [replace(entry, name=name) for entry, name in zip(outputs, names, strict=True)]
        return describe(digest, inputs, named, graph)

    return written_model(graph, intervals, lambda symbol: find_exporter(symbol.operator), description)


def written_model(
    graph: Graph,
    intervals: Mapping[str, Interval],
    exporter_of: Callable[[Symbol], Exporter[Any, Node, Value]],
    description: Callable[[Sequence[str]], Mapping[str, str]],
) -> onnx.ModelProto:
    """A model of a graph whose every operator has an exporter. intervals: of its integers, by name.

    description: the model's entries, given the names of its outputs. Raises ModelFileError as `to_onnx`.
    """
    scope = Scope(graph)
    for symbol in graph.inputs:
        scope.define(symbol, Value(scope.claim(symbol), symbol.dtype))
    for symbol in graph.operators:
        _write(symbol, exporter_of(symbol), intervals, scope)
    names = _name_outputs(graph, scope)
    scope.nodes[:] = _live(scope.nodes, names)
    initializers = scope.initializers()
    _check_size(initializers)
    made = helper.make_graph(
        scope.nodes,
        "integer_graph",
        [_value_info(symbol.name, symbol) for symbol in graph.inputs],
        [_value_info(name, symbol) for name, symbol in zip(names, graph.outputs, strict=True)],
        initializers,
        value_info=_intermediate_types(graph, scope.nodes, names),
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(
        made, opset_imports=opsets, ir_version=IR_VERSION, producer_name="mrt", producer_version=__version__
    )
    helper.set_model_props(model, dict(description(names)))
    if model.ByteSize() > MOST_BYTES:
        raise _too_large(model.ByteSize(), initializers)
    return model


def _write(
    symbol: Symbol, exporter: Exporter[Any, Node, Value], intervals: Mapping[str, Interval], scope: Scope
) -> None:
    """Writes one symbol with what computes it."""
    node, first = Node(symbol, intervals, scope), len(scope.nodes)
    value = node.cast(exporter(symbol.operator, node), symbol.dtype)
    scope.define(symbol, _named(value, symbol, scope, first))


def _named(value: Value, symbol: Symbol, scope: Scope, first: int) -> Value:
    """The value, renamed as its symbol if a node from `first` on made it; a value of another symbol stays as it is."""
    made = scope.nodes[first:]
    if scope.is_shared(value) or not any(value.name in node.output for node in made):
        return value
    name = scope.claim(symbol)
    for node in made:
        for names in (node.input, node.output):
            names[:] = [name if found == value.name else found for found in names]
        node.name = node.output[0]
    return Value(name, value.dtype)


def _name_outputs(graph: Graph, scope: Scope) -> list[str]:
    """The names of the graph's outputs, each once; what is an input, a parameter or another's value is copied."""
    made = {name for node in scope.nodes for name in node.output}
    names: list[str] = []
    for symbol in graph.outputs:
        value = scope.value(symbol)
        if value.name != symbol.name or value.name not in made or value.name in names:
            value = scope.emit("Identity", [value], scope.claim(symbol))
        names.append(value.name)
    return names


def _live(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> list[onnx.NodeProto]:
    """The nodes that an output needs, in order."""
    needed, live = set(outputs), []
    for node in reversed(nodes):
        if any(name in needed for name in node.output):
            live.append(node)
            needed.update(node.input)
    return live[::-1]


def _value_info(name: str, symbol: Symbol) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element_type(symbol.dtype), symbol.shape)


def _intermediate_types(
    graph: Graph, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]
) -> list[onnx.ValueInfoProto]:
    """Types of the values that are symbols of the graph, for readers of the model."""
    made = {name for node in nodes for name in node.output} - set(outputs)
    return [_value_info(symbol.name, symbol) for symbol in graph.operators if symbol.name in made]


def _check_size(initializers: Sequence[onnx.TensorProto]) -> None:
    """Checked before the model is put together, which fails above the limit."""
    size = sum(len(tensor.raw_data) for tensor in initializers)
    if size > MOST_BYTES:
        raise _too_large(size, initializers)


def _too_large(size: int, initializers: Sequence[onnx.TensorProto]) -> ModelFileError:
    largest = max(initializers, key=lambda tensor: len(tensor.raw_data))
    return ModelFileError(
        f"the ONNX model would have {size} bytes, of which {largest.name} has {len(largest.raw_data)}; "
        f"at most {MOST_BYTES} fit a file: compile the model, or write it in parts"
    )
