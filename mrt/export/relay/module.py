"""An integer graph as Relay text with its parameters, for TVM 0.8 to 0.19."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from mrt.errors import GraphError
from mrt.export.description import describe
from mrt.export.relay import exporters as _exporters
from mrt.export.relay.expressions import Argument, Call, Scalar, Value, attribute_text, tuple_type
from mrt.export.relay.node import Node, Scope, check_covered, find_exporter
from mrt.export.relay.params import params_to_bytes
from mrt.symbol import Graph, Interval, Symbol
from mrt.symbol.bounds import analyse_bounds
from mrt.symbol.quantized_tensor import TensorQuantization

del _exporters

VERSION = "0.0.5"
"""The version of Relay's text format, which TVM 0.7 to 0.19 share."""


def to_relay(
    graph: Graph, inputs: Sequence[TensorQuantization], outputs: Sequence[TensorQuantization], digest: str
) -> tuple[str, bytes]:
    """Relay text of one function, main, and a parameter file: the same integers for the same integers as `graph`.

    The function's arguments are the graph's inputs, in their shapes (the graph's own batch) and dtypes, and then the
    parameters, which the file holds by their names. Names are those of the symbols, with underscores for what Relay's
    parser does not read. The result is the output, or a tuple of them all, in order. Everything between is int32, so
    that no kernel of any TVM adds products in 16 bits; parameters keep their dtypes and are cast. Comments at the head
    of the text hold what `describe` tells of the model.

    inputs, outputs: how the integers of the graph's inputs and outputs stand for real values, in their order.
    Raises UnsupportedOperatorError listing every operator that cannot be written.
    """
    check_covered(graph)
    intervals = analyse_bounds(graph, {entry.name: Interval.of(entry.lo, entry.hi, entry.shape) for entry in inputs})
    scope = Scope(graph)
    fed = list(scope.arguments)
    for symbol in graph.operators:
        _write(symbol, intervals, scope)
    results = [_result(symbol, scope) for symbol in graph.outputs]
    calls = _live(scope.calls, results)
    read = {value for call in calls for value in call.inputs} | {*results, *fed}
    arguments = [argument for argument in scope.arguments if argument in read]
    named = [replace(entry, name=argument.name) for entry, argument in zip(inputs, fed, strict=True)]
    comments = [f"// {key} {text}" for key, text in describe(digest, named, outputs, graph).items()]
    lines = [f'#[version = "{VERSION}"]', *comments, *_function(arguments, calls, results)]
    parameters = {name: scope.parameters[name] for argument in arguments if (name := argument.name) in scope.parameters}
    return "\n".join(lines) + "\n", params_to_bytes(parameters)


def _write(symbol: Symbol, intervals: Mapping[str, Interval], scope: Scope) -> None:
    """Writes one symbol with what computes it."""
    value = find_exporter(symbol.operator)(symbol.operator, Node(symbol, intervals, scope))
    if value.shape != symbol.shape:
        raise GraphError(f"{symbol.name} ({symbol.op}): is written as {value.type}; shape {symbol.shape} is needed")
    scope.define(symbol, value)


def _result(symbol: Symbol, scope: Scope) -> Value:
    value = scope.value(symbol)
    return value if value.dtype == symbol.dtype else scope.cast(value, symbol.dtype)


def _live(calls: Sequence[Call], results: Iterable[Value]) -> list[Call]:
    """The calls that a result needs, in order."""
    needed, live = set(results), []
    for call in reversed(calls):
        if call in needed:
            live.append(call)
            needed.update(call.inputs)
    return live[::-1]


def _function(arguments: Sequence[Argument], calls: Sequence[Call], results: Sequence[Value]) -> Iterator[str]:
    declared = ", ".join(f"%{argument.name}: {argument.type}" for argument in arguments)
    returned = results[0].type if len(results) == 1 else tuple_type([value.type for value in results])
    yield f"def @main({declared}) -> {returned} {{"
    names: dict[Value, str] = {argument: f"%{argument.name}" for argument in arguments}
    count = 0
    for place, call in enumerate(calls):
        inputs = [_text(value, names) for value in call.inputs]
        if call.is_tuple:
            types = tuple_type([value.type for value in call.inputs])
            yield f"  %{count} = {tuple_type(inputs)} /* ty={types} */;"
            inputs, count = [f"%{count}"], count + 1
        given = [f"{name}={attribute_text(value)}" for name, value in call.attributes.items()]
        text = f"{call.operator}({', '.join([*inputs, *given])}) /* ty={call.type} */"
        if place == len(calls) - 1 and results == [call]:
            yield f"  {text}"
        else:
            names[call] = f"%{count}"
            yield f"  %{count} = {text};"
            count += 1
    if len(results) > 1:
        yield f"  {tuple_type([_text(value, names) for value in results])} /* ty={returned} */"
    elif results[0] in names:
        yield f"  {names[results[0]]}"
    yield "}"


def _text(value: Value, names: Mapping[Value, str]) -> str:
    return f"{value.number} /* ty={value.type} */" if isinstance(value, Scalar) else names[value]
