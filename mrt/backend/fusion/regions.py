"""Regions: the parts of a graph that become one PrimFunc each: an operator and the elementwise ones that follow it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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
            if _repeating([*members[source], *joined]) > MAX_REPEATING:
                continue
            has_anchor = kind_of(members[source][0]) is not Kind.ELEMENTWISE
            if (has_anchor and anchored) or (
                _is_branch(members[source], graph) and not _goes_on(symbol, source, graph)
            ):
                continue
            part = members.pop(source)
            joined = [*part, *joined] if has_anchor else [*joined[:-1], *part, symbol]
            anchored = anchored or has_anchor
        members[symbol] = joined
    return [region_of(symbols, symbols[-1:]) for symbols in members.values()]


def join_branches(graph: Graph, regions: Sequence[Region]) -> list[Region]:
    """Joins to a region the elementwise ones that read its output, and nothing else that is computed.

    Such are the requantizations of one tensor for several readers: the tensor itself then is never stored. Where others
    read it as it is, it is an output, too, and the last one; what makes something narrower of it is joined then.
    """
    readers: dict[Symbol, list[Region]] = {}
    for region in regions:
        for source in region.inputs:
            readers.setdefault(source, []).append(region)
    joined: dict[Region, Region] = {}
    branches: set[Region] = set()
    for region in regions:
        if region in branches:
            continue
        if region.output in graph.outputs:
            found, outputs = _kept_branches(region, readers, graph)
        else:
            found, outputs = _branches(region, readers.get(region.output, []), graph)
        symbols = [*region.symbols, *(symbol for branch in found for symbol in branch.symbols)]
        if found and len(symbols) <= MAX_SYMBOLS and _repeating(symbols) <= MAX_REPEATING:
            joined[region] = region_of(symbols, outputs)
            branches.update(found)
    return [joined.get(region, region) for region in regions if region not in branches]


def _branches(region: Region, readers: Sequence[Region], graph: Graph) -> tuple[list[Region], list[Symbol]]:
    """Those of the readers that may be joined to a region, and the outputs that it then has."""
    source = region.output
    if len(readers) < 2:
        return [], []
    found = [reader for reader in readers if _is_elementwise_in([source], reader, graph)]
    if len(found) == len(readers):
        return found, [branch.output for branch in found]
    # A Concat's part is made by itself, so that it can be written in its place.
    if any(joined_axis(reader) is not None for reader in graph.consumers[source]):
        return [], []
    found = [branch for branch in found if _is_narrower(branch.output, source)]
    return found, [*(branch.output for branch in found), source]


def _kept_branches(
    region: Region, readers: Mapping[Symbol, Sequence[Region]], graph: Graph
) -> tuple[list[Region], list[Symbol]]:
    """What may be joined to a region whose output is one of the graph, and the outputs that it then has.

    The output is stored anyway: whatever of it alone is elementwise, and no wider, is made where it is.
    """
    source = region.output
    if any(joined_axis(reader) is not None for reader in graph.consumers[source]):
        return [], []
    found: dict[Symbol, Region] = {}
    behind = [source]
    while behind:
        for reader in readers.get(behind.pop(0), []):
            is_new = reader.output not in found and not _is_narrower(source, reader.output)
            if is_new and _is_elementwise_in([source, *found], reader, graph):
                found[reader.output] = reader
                behind.append(reader.output)
    return list(found.values()), [*found, source]


def _is_narrower(made: Symbol, source: Symbol) -> bool:
    return np.dtype(made.dtype).itemsize < np.dtype(source.dtype).itemsize


def _repeating(symbols: Sequence[Symbol]) -> int:
    return sum(repeats_input(symbol) for symbol in symbols)


def _is_elementwise_in(sources: Collection[Symbol], region: Region, graph: Graph) -> bool:
    """Whether a region is elementwise in `sources`, all of its shape, and parameters."""
    elementwise = all(kind_of(symbol) is Kind.ELEMENTWISE for symbol in region.symbols)
    computed = [symbol for symbol in region.inputs if graph.value(symbol) is None]
    return elementwise and all(symbol in sources and symbol.shape == region.output.shape for symbol in computed)


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
    return _is_narrower(symbols[-1], source) and len(graph.consumers[source]) > 1


def _goes_on(symbol: Symbol, source: Symbol, graph: Graph) -> bool:
    """Whether an operator makes nothing wider of `source`, and parameters, so that the branch that makes it goes on."""
    others = [each for each in symbol.inputs if each is not source and graph.value(each) is None]
    return kind_of(symbol) is Kind.ELEMENTWISE and not others and not _is_narrower(source, symbol)


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
        if kind in (Kind.OTHER, Kind.REDUCTION, Kind.STEPS):
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
