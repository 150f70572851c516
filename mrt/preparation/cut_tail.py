"""Cuts the float tail off: trailing softmaxes and their like, and whatever follows the symbols that a config names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from mrt.errors import ConfigError
from mrt.symbol import Graph, GraphBuilder, Refusal, Symbol
from mrt.symbol.operators.normalization import OverClasses


@dataclass(frozen=True)
class Cut:
    """A graph in two: what is quantized, and the float tail that stays.

    body: its outputs are the tensors that cross the cut, in order. tail: its inputs are those tensors, under their
    names and in the same order, its outputs the outputs of the whole; None where nothing was cut, body then being
    the whole. refusals: softmaxes at an output that had to stay.
    """

    body: Graph
    tail: Graph | None
    refusals: tuple[Refusal, ...] = ()


def cut_tail(graph: Graph, split: Sequence[str] = (), softmax: bool = True, left_out: Collection[str] = ()) -> Cut:
    """Cuts `graph` before the symbols that `split` names and, with `softmax`, before trailing softmaxes.

    1. A softmax, or the logarithm of one, that reaches outputs only, directly or through reshapes, transposes and a
       choice of the largest, is where a tail begins.
    2. So is every operator whose name is in `split` or matches an fnmatch pattern there. ConfigError for one that
       matches none, neither here nor among `left_out`, the operators of the file that its reader left out.
    3. Whatever depends on the beginning of a tail is in the tail. Where the tail reads other tensors, these cross the
       cut too; parameters are taken along. An output that is not in the tail crosses, and the tail gives it on.
    """
    starts, refusals = _softmaxes(graph) if softmax else ([], [])
    members = _descendants(graph, [*starts, *_named(graph, split, left_out)])
    if not members:
        return Cut(graph, None, tuple(refusals))
    crossing = _crossing(graph, members)
    return Cut(graph.with_outputs(crossing), _tail(graph, members, crossing), tuple(refusals))


def named_symbols(graph: Graph, split: Sequence[str], left_out: Collection[str]) -> frozenset[str]:
    """The names of the operators before which `split` cuts; raises what `cut_tail` does."""
    return frozenset(symbol.name for symbol in _named(graph, split, left_out))


def join_tail(body: Graph, tail: Graph) -> tuple[Graph, Graph]:
    """The body and its tail, made to fit again after the body was rewritten.

    The outputs of `body` are still those that the inputs of `tail` stand for, but may have other names, be one symbol
    where they were two, or have become parameters. In the result every output of the body stands once and is an input
    of the tail of the same name; parameters have moved into the tail.
    """
    builder = GraphBuilder()
    new: dict[Symbol, Symbol] = {}
    known: dict[Symbol, Symbol] = {}
    outputs: list[Symbol] = []
    constants: list[tuple[Symbol, Symbol]] = []
    for stands_for, output in zip(tail.inputs, body.outputs, strict=True):
        if body.value(output) is not None:
            constants.append((stands_for, output))
            continue
        if output not in known:
            known[output] = builder.input(output.name, output.type)
            outputs.append(output)
        new[stands_for] = known[output]
    for stands_for, output in constants:
        new[stands_for] = builder.parameter(output.name, body.parameters[output.name])
    for symbol in tail.symbols:
        if symbol not in new:
            new[symbol] = _copied(tail, symbol, new, builder)
    return body.with_outputs(outputs), builder.graph([new[symbol] for symbol in tail.outputs])


def _softmaxes(graph: Graph) -> tuple[list[Symbol], list[Refusal]]:
    """The softmaxes that reach outputs only, and a refusal for each that reaches an output and more."""
    found: list[Symbol] = []
    refusals: list[Refusal] = []
    for output in dict.fromkeys(graph.outputs):
        symbol = output
        while _passes_on(symbol):
            symbol = symbol.inputs[0]
        if not isinstance(symbol.operator, OverClasses) or symbol in found:
            continue
        others = [s for s in _descendants(graph, [symbol])[1:] if not _passes_on(s)]
        if others:
            refusals.append(Refusal(symbol.name, f"cut_softmax: {others[0].name} ({others[0].op}) reads it as well"))
        else:
            found.append(symbol)
    return found, refusals


def _passes_on(symbol: Symbol) -> bool:
    """Whether it may stand between a softmax and an output."""
    return symbol.operator.keeps_elements or symbol.operator.compares_elements


def _named(graph: Graph, split: Iterable[str], left_out: Collection[str]) -> list[Symbol]:
    found: list[Symbol] = []
    for pattern in split:
        matches = [s for s in graph.operators if s.name == pattern or fnmatchcase(s.name, pattern)]
        if not matches and not any(name == pattern or fnmatchcase(name, pattern) for name in left_out):
            names = [symbol.name for symbol in graph.operators]
            nearest = ", ".join(get_close_matches(pattern, names, cutoff=0.0)) or "none, the graph has no operators"
            what = "is an input or parameter" if pattern in graph.by_name else "matches no symbol"
            raise ConfigError(f"prepare.split: {pattern!r} {what}; an operator's name is needed, nearest: {nearest}")
        found.extend(matches)
    return found


def _descendants(graph: Graph, starts: Sequence[Symbol]) -> list[Symbol]:
    """`starts` and whatever depends on them, in the graph's order."""
    members = set(starts)
    for symbol in graph.operators:
        if any(source in members for source in symbol.inputs):
            members.add(symbol)
    return [symbol for symbol in graph.operators if symbol in members]


def _crossing(graph: Graph, members: Sequence[Symbol]) -> list[Symbol]:
    """The tensors that the tail reads or that are outputs outside it, each once, by the first output that needs it."""
    inside = set(members)
    needed_by = {output: index for index, output in reversed(list(enumerate(graph.outputs)))}
    for symbol in reversed(members):
        for source in symbol.inputs:
            needed_by[source] = min(needed_by.get(source, len(graph.outputs)), needed_by[symbol])
    found = [s for s in graph.symbols if s in needed_by and s not in inside and graph.value(s) is None]
    return sorted(found, key=lambda symbol: needed_by[symbol])


def _tail(graph: Graph, members: Sequence[Symbol], crossing: Sequence[Symbol]) -> Graph:
    builder = GraphBuilder()
    new = {symbol: builder.input(symbol.name, symbol.type) for symbol in crossing}
    inside = set(members)
    needed = {source for symbol in members for source in symbol.inputs} | set(graph.outputs)
    for symbol in graph.symbols:
        if symbol not in new and (symbol in inside or symbol in needed):
            new[symbol] = _copied(graph, symbol, new, builder)
    return builder.graph([new[symbol] for symbol in graph.outputs])


def _copied(graph: Graph, symbol: Symbol, new: dict[Symbol, Symbol], builder: GraphBuilder) -> Symbol:
    value = graph.value(symbol)
    if value is not None:
        return builder.parameter(symbol.name, value, symbol.origin)
    return builder.reapply(symbol, tuple(new[source] for source in symbol.inputs))
