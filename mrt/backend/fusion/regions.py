"""Regions: the parts of a graph that become one PrimFunc each: an operator and the elementwise ones around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mrt.backend.memory.storage import VECTOR, channels_of
from mrt.backend.te.registry import Kind, joined_axis, kind_of, repeats_input
from mrt.symbol import Graph, Symbol

MAX_SYMBOLS = 24
"""Symbols of one region; expressions of longer chains would be deep enough to exhaust TVM's recursion."""
MAX_REPEATING = 2
"""Symbols of one region whose expressions repeat their input, some twenty times each."""


@dataclass(frozen=True, eq=False)
class Region:
    """symbols: in order. inputs: what they read from outside. outputs: those of them that are read outside.

    stored: of a region that is computed row by row, those whose rows are kept on the way; None for any other.
    """

    symbols: tuple[Symbol, ...]
    inputs: tuple[Symbol, ...]
    outputs: tuple[Symbol, ...]
    stored: tuple[Symbol, ...] | None = None

    @property
    def output(self) -> Symbol:
        """The last output, and the only one unless branches were joined."""
        return self.outputs[-1]

    @property
    def places(self) -> dict[Symbol, int]:
        """A number for every symbol of the region and every input, in order."""
        inputs = {symbol: -1 - i for i, symbol in enumerate(self.inputs)}
        return inputs | {symbol: i for i, symbol in enumerate(self.symbols)}

    @property
    def structure(self) -> Any:
        """What the region computes: operators, types, and what reads what."""
        places = self.places
        wired = tuple((s.operator, s.type, tuple(places[source] for source in s.inputs)) for s in self.symbols)
        kept = None if self.stored is None else tuple(places[symbol] for symbol in self.stored)
        return wired, tuple(s.type for s in self.inputs), tuple(places[output] for output in self.outputs), kept


def find_regions(graph: Graph) -> list[Region]:
    """Partitions the graph's operators into regions, each after those that it reads.

    Fused is an elementwise operator with what it alone reads, of the same shape: any number of elementwise operators,
    and at most one other, the anchor. So is a reduction that leaves channels with the elementwise operators that it
    alone reads. What reads one tensor twice ends its region: TVM simplifies x - x to 0 in one place and not in another,
    and then refuses the expressions around it.
    """
    outputs = set(graph.outputs)
    members: dict[Symbol, list[Symbol]] = {}
    for symbol in graph.operators:
        joined = [symbol]
        anchored = kind_of(symbol) is not Kind.ELEMENTWISE
        for source in symbol.inputs if not anchored or _adds_up_positions(symbol) else ():
            if source not in members or source in outputs or len(graph.consumers[source]) != 1:
                continue
            if len(set(source.inputs)) < len(source.inputs):
                continue
            if source.shape != symbol.shape and kind_of(symbol) is Kind.ELEMENTWISE:
                continue
            if len(members[source]) + len(joined) > MAX_SYMBOLS:
                continue
            if repeating([*members[source], *joined]) > MAX_REPEATING:
                continue
            has_anchor = any(kind_of(each) is not Kind.ELEMENTWISE for each in members[source])
            if (
                (has_anchor and anchored)
                or joins_uneven(members[source][0])
                or (_is_branch(members[source], graph) and not _goes_on(symbol, source, graph))
            ):
                continue
            part = members.pop(source)
            joined = [*part, *joined] if has_anchor else [*joined[:-1], *part, symbol]
            anchored = anchored or has_anchor
        members[symbol] = joined
    return [region_of(symbols, symbols[-1:]) for symbols in members.values()]


def _adds_up_positions(symbol: Symbol) -> bool:
    """Whether a reduction leaves the channels of a map, along which vectors of what it reads can be made."""
    return kind_of(symbol) is Kind.REDUCTION and symbol.type.rank > 3 and symbol.shape[1] == symbol.inputs[0].shape[1]


def is_narrower(made: Symbol, source: Symbol) -> bool:
    """Whether an element of `made` has fewer bytes."""
    return np.dtype(made.dtype).itemsize < np.dtype(source.dtype).itemsize


def repeating(symbols: Sequence[Symbol]) -> int:
    """How many of the symbols repeat their input in their expression."""
    return sum(repeats_input(symbol) for symbol in symbols)


def _is_branch(symbols: Sequence[Symbol], graph: Graph) -> bool:
    """Whether elementwise operators make something narrower of one tensor that others read too.

    Whoever makes the tensor does it better than whoever reads the result, who would read the wide one.
    """
    inside = set(symbols)
    read = {source for symbol in symbols for source in symbol.inputs if source not in inside}
    computed = [source for source in read if graph.value(source) is None]
    if len(computed) != 1 or kind_of(symbols[0]) is not Kind.ELEMENTWISE or computed[0].is_variable:
        return False
    (source,) = computed
    return is_narrower(symbols[-1], source) and len(graph.consumers[source]) > 1


def joins_uneven(symbol: Symbol) -> bool:
    """Whether channels or features are joined that are no whole vectors: the join is a function of its own then.

    It copies pieces of memory, and what follows takes whole vectors, where each element would choose between the parts.
    """
    axis = channels_of(symbol.type.rank)
    return joined_axis(symbol) == axis and any(part.shape[axis] % VECTOR for part in symbol.inputs[:-1])


def _goes_on(symbol: Symbol, source: Symbol, graph: Graph) -> bool:
    """Whether an operator makes nothing wider of `source`, and parameters, so that the branch that makes it goes on."""
    others = [each for each in symbol.inputs if each is not source and graph.value(each) is None]
    return kind_of(symbol) is Kind.ELEMENTWISE and not others and not is_narrower(source, symbol)


def region_of(symbols: Sequence[Symbol], outputs: Sequence[Symbol]) -> Region:
    """The region of symbols in order, of which `outputs` are read outside."""
    inside = set(symbols)
    inputs = dict.fromkeys(source for symbol in symbols for source in symbol.inputs if source not in inside)
    return Region(tuple(symbols), tuple(inputs), tuple(outputs))


def walked_as_one(region: Region) -> int:
    """How many trailing axes of the output every symbol of the region walks in memory order."""
    output = region.output
    least = len(output.shape)
    for symbol in region.symbols:
        kind = kind_of(symbol)
        if kind in (Kind.OTHER, Kind.GATHER, Kind.REDUCTION, Kind.STEPS):
            return 1
        if kind is Kind.ELEMENTWISE:
            for source in symbol.inputs:
                least = min(least, _trailing(source.shape, symbol.shape))
    return max(least, 1)


def _trailing(shape: tuple[int, ...], full: tuple[int, ...]) -> int:
    """The largest group of trailing axes of `full` that `shape` either fills or is broadcast over as a whole.

    None where `shape` has more axes, as a table has that a single number is looked up in.
    """
    if len(shape) > len(full):
        return 0
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
