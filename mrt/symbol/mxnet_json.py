"""MRT's own graphs as MXNet symbol JSON, written and read; MXNet's are read by mrt.frontend.mxnet."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from mrt.errors import GraphError, ModelFileError
from mrt.symbol.builder import GraphBuilder
from mrt.symbol.graph import Graph
from mrt.symbol.interval import Array
from mrt.symbol.operator import Operator, parse_operator
from mrt.symbol.sizes import check_sizes
from mrt.symbol.symbol import Symbol, apply, variable
from mrt.symbol.symbol_json import DTYPE_CODES, JsonNode, Reference, read_symbol_json
from mrt.symbol.types import TensorType, type_of

FORMAT_VERSION = 1
"""Stands in the graph's attributes of the files that MRT writes."""

_MXNET_VERSION = 10901


def graph_to_json(graph: Graph) -> str:
    """The graph without its parameters' values; the same text for the same graph.

    Inputs stand first and in order. Variables carry __shape__ and __dtype__ (MXNet's code), inputs also __input__, and
    symbols whose origin is another name carry it as __origin__.
    """
    fed = set(graph.inputs)
    return symbols_to_json(
        graph, lambda symbol: _own_attributes(symbol, symbol in fed), {"format_version": ["int", FORMAT_VERSION]}
    )


def symbols_to_json(
    graph: Graph, attributes: Callable[[Symbol], Mapping[str, str]], graph_attributes: Mapping[str, list[Any]]
) -> str:
    """A symbol JSON in the form of MXNet 1.9.1, its inputs first and in order.

    attributes: gives those of each node. graph_attributes: those of the graph besides MXNet's version, each a type and
    a value.
    """
    fed = set(graph.inputs)
    order = [*graph.inputs, *(symbol for symbol in graph.symbols if symbol not in fed)]
    index = {symbol: place for place, symbol in enumerate(order)}
    nodes = ",\n".join(f"  {_line(_node(symbol, index, attributes(symbol)))}" for symbol in order)
    rest = {
        "arg_nodes": [place for place, symbol in enumerate(order) if symbol.is_variable],
        "node_row_ptr": list(range(len(order) + 1)),
        "heads": [[index[symbol], 0, 0] for symbol in graph.outputs],
        "attrs": {"mxnet_version": ["int", _MXNET_VERSION], **graph_attributes},
    }
    members = [f' "nodes": [\n{nodes}\n ]', *(f" {_line(key)}: {_line(value)}" for key, value in rest.items())]
    return "{\n" + ",\n".join(members) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _node(symbol: Symbol, index: Mapping[Symbol, int], attributes: Mapping[str, str]) -> dict[str, Any]:
    node: dict[str, Any] = {"op": symbol.op, "name": symbol.name}
    if attributes:
        node["attrs"] = attributes
    node["inputs"] = [[index[source], 0, 0] for source in symbol.inputs]
    return node


def _own_attributes(symbol: Symbol, is_input: bool) -> dict[str, str]:
    attributes = stated_type(symbol) if symbol.is_variable else attributes_of(symbol)
    if is_input:
        attributes["__input__"] = "True"
    if symbol.origin != symbol.name:
        attributes["__origin__"] = symbol.origin
    return attributes


def stated_type(variable: Symbol) -> dict[str, str]:
    """A variable's type as MXNet notes it."""
    return {"__shape__": str(variable.shape), "__dtype__": str(DTYPE_CODES[variable.dtype])}


def attributes_of(symbol: Symbol) -> dict[str, str]:
    """The attributes of a symbol's operator that differ from their defaults, as texts."""
    attributes = {name: str(value) for name, value in symbol.operator.attributes().items()}
    if "num_args" in _ignored(symbol.operator):
        attributes["num_args"] = str(len(symbol.inputs))
    return attributes


def _ignored(operator: Operator) -> frozenset[str]:
    return getattr(operator, "ignored", frozenset())


def graph_from_json(text: str, parameters: Mapping[str, Array]) -> Graph:
    """The graph of a symbol JSON that `graph_to_json` wrote.

    parameters: arrays by the names of their variables. Raises ModelFileError where the text is no such JSON or a
    parameter is missing or of another type, GraphError where an operator is not known or does not fit.
    """
    content = read_symbol_json(text)
    version = content.attributes.get("format_version")
    if version is None:
        raise ModelFileError("the symbol file was not written by MRT; mrt.from_mxnet reads those that MXNet writes")
    if version != ["int", FORMAT_VERSION]:
        raise ModelFileError(f"the symbol file has format_version {version}; {FORMAT_VERSION} is needed: update MRT")
    builder = GraphBuilder(reserved=(node.name for node in content.nodes))
    symbols: dict[Reference, Symbol] = {}
    for place, node in enumerate(content.nodes):
        if node.is_variable:
            symbol = _read_variable(node, parameters, builder)
        else:
            symbol = _read_operator(node, [_output(source, node.name, symbols) for source in node.inputs], builder)
        symbols[Reference(place, 0)] = symbol
    graph = builder.graph([_output(head, "heads", symbols) for head in content.heads])
    check_sizes(graph)
    return graph


def _output(reference: Reference, reader: str, symbols: Mapping[Reference, Symbol]) -> Symbol:
    if reference not in symbols:
        raise ModelFileError(f"{reader} of the symbol file reads output {reference.output}; there is none but 0")
    return symbols[reference]


def _read_variable(node: JsonNode, parameters: Mapping[str, Array], builder: GraphBuilder) -> Symbol:
    origin = node.attributes.get("__origin__")
    shape = node.stated_shape()
    if shape is None or min(shape, default=0) < 0:
        raise ModelFileError(f"{node.name} of the symbol file has __shape__ {shape}; lengths are needed")
    stated = TensorType(shape, node.stated_dtype())
    if "__input__" in node.attributes:
        return builder.adopt_input(variable(node.name, stated, origin))
    if node.name not in parameters:
        raise ModelFileError(f"parameter {node.name} is missing; {stated} is needed")
    value = parameters[node.name]
    if stated != type_of(value):
        raise ModelFileError(f"parameter {node.name} is {type_of(value)}; the symbol file says {stated}")
    return builder.parameter(node.name, value, origin)


def _read_operator(node: JsonNode, inputs: list[Symbol], builder: GraphBuilder) -> Symbol:
    try:
        operator = parse_operator(node.op, node.attributes)
    except GraphError as error:
        raise GraphError(f"{node.name} ({node.op}): {error}") from None
    return apply(operator, inputs, builder.unique(node.name), node.attributes.get("__origin__"))
