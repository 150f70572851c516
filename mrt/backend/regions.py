"""Regions: the parts of a graph that become one PrimFunc each: an operator and the elementwise ones that follow it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mrt.backend.compute import Kind, kind_of
from mrt.symbol import Graph, Symbol

MAX_SYMBOLS = 24
"""Symbols of one region; expressions of longer chains would be deep enough to exhaust TVM's recursion."""


@dataclass(frozen=True, eq=False)
class Region:
    """symbols: in order, the last one being the only one that is read outside. inputs: what they read from outside."""

    symbols: tuple[Symbol, ...]
    inputs: tuple[Symbol, ...]

    @property
    def output(self) -> Symbol:
        return self.symbols[-1]

    def key(self, graph: Graph) -> Any:
        """What decides the region's code: operators, types and wiring, and which inputs are parameters."""
        place = {symbol: -1 - i for i, symbol in enumerate(self.inputs)}
        place |= {symbol: i for i, symbol in enumerate(self.symbols)}
        wired = tuple((s.operator, s.type, tuple(place[source] for source in s.inputs)) for s in self.symbols)
        return wired, tuple((s.type, graph.value(s) is not None) for s in self.inputs)


def find_regions(graph: Graph) -> list[Region]:
    """Partitions the graph's operators into regions, each after those that it reads.

    Fused is an elementwise operator with what it alone reads, of the same shape: any number of elementwise operators,
    and at most one other, the anchor. What reads one tensor twice ends its region: TVM simplifies x - x to 0 in one
    place and not in another, and then refuses the expressions around it.
    """
    outputs = set(graph.outputs)
    members: dict[Symbol, list[Symbol]] = {}
    for symbol in graph.operators:
        joined = [symbol]
        anchored = kind_of(symbol) is not Kind.ELEMENTWISE
        for source in symbol.inputs if not anchored else ():
            if source not in members or source in outputs or len(graph.consumers[source]) != 1:
                continue
            if len(set(source.inputs)) < len(source.inputs):
                continue
            if source.shape != symbol.shape or len(members[source]) + len(joined) > MAX_SYMBOLS:
                continue
            has_anchor = kind_of(members[source][0]) is not Kind.ELEMENTWISE
            if has_anchor and anchored:
                continue
            part = members.pop(source)
            joined = [*part, *joined] if has_anchor else [*joined[:-1], *part, symbol]
            anchored = anchored or has_anchor
        members[symbol] = joined
    return [_region(symbols) for symbols in members.values()]


def _region(symbols: list[Symbol]) -> Region:
    inside = set(symbols)
    inputs = dict.fromkeys(source for symbol in symbols for source in symbol.inputs if source not in inside)
    return Region(tuple(symbols), tuple(inputs))


def walked_as_one(region: Region) -> int:
    """How many trailing axes of the output every symbol of the region walks in memory order."""
    output = region.output
    least = len(output.shape)
    for symbol in region.symbols:
        kind = kind_of(symbol)
        if kind is Kind.OTHER:
            return 1
        if kind is Kind.ELEMENTWISE:
            for source in symbol.inputs:
                least = min(least, _trailing(source.shape, symbol.shape))
    return max(least, 1)


def _trailing(shape: tuple[int, ...], full: tuple[int, ...]) -> int:
    """The largest group of trailing axes of `full` that `shape` either fills or is broadcast over as a whole."""
    aligned = (1,) * (len(full) - len(shape)) + shape
    same, single = 0, 0
    for n, m in zip(reversed(aligned), reversed(full), strict=True):
        if n != m:
            break
        same += 1
    for n in reversed(aligned):
        if n != 1:
            break
        single += 1
    return max(same, single)
