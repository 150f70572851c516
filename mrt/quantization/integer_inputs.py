"""What the integers of inputs are that nobody declares: positions in a table, as token ids are, or masks of 0 and 1."""

from __future__ import annotations

from collections.abc import Mapping

from mrt.quantization.options import InputConfig
from mrt.symbol import Graph, Interval, Symbol
from mrt.symbol.masks import LOWERS, compared_places, forbidding_condition, forbids, passed_on


def integer_inputs(graph: Graph, declared: Mapping[str, InputConfig]) -> dict[str, InputConfig]:
    """What follows from the graph, as it was read, for inputs of integers that are not declared; the first that holds.

    1. An input whose elements are positions, of rows of a table, say, or are compared with those along an axis, also
       behind what only moves them, has the range of the positions that there are: of all its readers together.
    2. A truth value, and an input from which, with others of integers alone, something is made that only forbids scores
       of softmaxes, or decides which are forbidden, is 0 or 1.

    Of other inputs nothing follows, and they must be declared.
    """
    left = [symbol for symbol in graph.inputs if symbol.type.is_integer and symbol.name not in declared]
    ranges = {symbol.name: positions for symbol in left if (positions := _positions(graph, symbol))}
    masks = _masks(graph) if len(ranges) < len(left) else set()
    ranges |= {s.name: (0, 1) for s in left if s.name not in ranges and (s.dtype == "bool" or s in masks)}
    return {name: InputConfig(dtype="int32", range=limits) for name, limits in ranges.items()}


def _positions(graph: Graph, symbol: Symbol) -> tuple[int, int] | None:
    """The integers that are positions for all readers that take a tensor's elements as such; None without one."""
    found: list[tuple[int, int]] = []
    pending, seen = [symbol], {symbol}
    while pending:
        given = pending.pop()
        for reader in graph.consumers[given]:
            types = [source.type for source in reader.inputs]
            places = [reader.operator.positions(i, *types) for i, s in enumerate(reader.inputs) if s is given]
            found += [place for place in places if place is not None]
            count = compared_places(graph, reader, given)
            found += [(0, count - 1)] if count is not None else []
            is_same = reader.shape == given.shape and reader.operator.is_identity(*types)  # a cast too
            moves = is_same or given in passed_on(reader)
            if moves and reader not in seen and all(place is None for place in places):
                seen.add(reader)
                pending.append(reader)
    lo, hi = max((lo for lo, _ in found), default=1), min((hi for _, hi in found), default=0)
    return (lo, hi) if lo <= hi else None


def _masks(graph: Graph) -> set[Symbol]:
    """The inputs of integers of which, 0 or 1, something is made that forbids scores of softmaxes."""
    made_of: dict[Symbol, frozenset[Symbol]] = {}
    bounds: dict[Symbol, Interval] = {}
    found: set[Symbol] = set()
    for symbol in graph.inputs:
        if symbol.type.is_integer:
            made_of[symbol], bounds[symbol] = frozenset((symbol,)), Interval.of(0, 1, symbol.shape)
    for symbol in graph.symbols:
        value = graph.value(symbol)
        if value is not None:
            made_of[symbol], bounds[symbol] = frozenset(), Interval.constant(value)
        elif symbol.inputs and all(source in made_of for source in symbol.inputs):
            made_of[symbol] = frozenset().union(*(made_of[source] for source in symbol.inputs))
            bounds[symbol] = symbol.operator.bounds(*(bounds[source] for source in symbol.inputs))
            if bounds[symbol].min <= LOWERS and bounds[symbol].max <= 0 and forbids(graph, symbol):
                found |= made_of[symbol]
        condition = forbidding_condition(graph, symbol, LOWERS)
        found |= made_of.get(condition, frozenset()) if condition is not None else frozenset()
    return found
