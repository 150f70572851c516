"""An integer graph as a checkpoint of MXNet 1.x, which computes it exactly in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mrt.errors import GraphError
from mrt.export.description import describe, describe_nodes
from mrt.export.mxnet import exporters as _exporters
from mrt.export.mxnet.node import Node, Scope, check_covered, find_exporter
from mrt.export.mxnet.params import params_to_bytes
from mrt.symbol import Graph, Interval, Symbol
from mrt.symbol.bounds import analyse_bounds
from mrt.symbol.mxnet_json import attributes_of, stated_type, symbols_to_json
from mrt.symbol.operators.arrangement import UpSampling
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.pad import Pad
from mrt.symbol.quantized_tensor import TensorQuantization
from mrt.symbol.registry import ByRecord

del _exporters


def to_mxnet(
    graph: Graph, inputs: Sequence[TensorQuantization], outputs: Sequence[TensorQuantization], digest: str
) -> tuple[str, bytes]:
    """The symbol JSON and the parameter file of a float64 network: the same integers for the same integers as `graph`.

    Every tensor is float64 and holds integers, or halves of them on the way to a shift: sums of products and all that
    is made on the way are proven to have at most 53 binary digits, so that nothing is rounded in any order. Variables
    and operators are called as the symbols; a shape of rank 0 is (1,). Inputs carry their shape, which has the graph's
    own batch, and dtype; one that no output needs is left out. The JSON's own attributes hold what `describe` tells of
    the model, and those of inputs and outputs what `describe_nodes` does: MXNet writes no others of the JSON.

    inputs, outputs: how the integers of the graph's inputs and outputs stand for real values, in their order.
    Raises UnsupportedOperatorError listing every operator that cannot be written.
    """
    check_covered(graph)
    intervals = analyse_bounds(graph, {entry.name: Interval.of(entry.lo, entry.hi, entry.shape) for entry in inputs})
    scope = Scope(graph)
    for symbol in graph.operators:
        _write(symbol, intervals, scope)
    written = _without_unread_inputs(scope.builder.graph([scope.value(symbol) for symbol in graph.outputs]))
    named = [replace(entry, name=symbol.name) for entry, symbol in zip(outputs, written.outputs, strict=True)]
    description = {key: ["str", text] for key, text in describe(digest, inputs, named, graph).items()}
    fed = set(written.inputs)
    told = describe_nodes(digest, inputs, named)

    def attributes(symbol: Symbol) -> dict[str, str]:
        return _attributes(symbol, symbol in fed) | told.get(symbol.name, {})

    text = symbols_to_json(written, attributes, description)
    return text, params_to_bytes(written.parameters)


def _write(symbol: Symbol, intervals: Mapping[str, Interval], scope: Scope) -> None:
    """Writes one symbol with what computes it."""
    node = Node(symbol, intervals, scope)
    value = find_exporter(symbol.operator)(symbol.operator, node)
    if value.shape != node.shape:
        raise GraphError(f"{symbol.name} ({symbol.op}): is written as {value.type}; shape {node.shape} is needed")
    if value.is_variable or any(value is read for read in node.inputs):
        scope.define(symbol, value)
    else:
        scope.define_new(symbol, value)


def _without_unread_inputs(graph: Graph) -> Graph:
    """The graph without the inputs that nothing reads, which MXNet drops too."""
    read = set(graph.symbols)
    return Graph(tuple(symbol for symbol in graph.inputs if symbol in read), graph.outputs, graph.parameters)


def _attributes(symbol: Symbol, is_input: bool) -> dict[str, str]:
    if symbol.is_variable:
        return stated_type(symbol) if is_input else {}
    more = _MORE_ATTRIBUTES.find(type(symbol.operator))
    return attributes_of(symbol) | (more(symbol.operator) if more else {})


_MORE_ATTRIBUTES: ByRecord[Callable[[Any], dict[str, str]]] = ByRecord("set of attributes for MXNet")
# By Fourier and Winograd transforms, which cuDNN may choose, sums of integers are not exact.
for _record in (Convolution, Deconvolution):
    _MORE_ATTRIBUTES.add(_record, lambda operator: {"cudnn_off": "True"})
# These have a default in the record and none in MXNet.
_MORE_ATTRIBUTES.add(Pad, lambda operator: {"mode": operator.mode})
_MORE_ATTRIBUTES.add(UpSampling, lambda operator: {"sample_type": operator.sample_type})
