"""Rows: regions that compute along the last axis only, such as those of a softmax, joined to one function.

A row is small: all that is made of it on the way, sums and maxima included, stays in the first cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mrt.backend.fusion.regions import Region, region_of
from mrt.backend.te.registry import Kind, kind_of
from mrt.symbol import Graph, Symbol

MAX_ROW_SYMBOLS = 64
"""Symbols of regions that are joined; what is stored on the way keeps their expressions short."""


@dataclass(frozen=True)
class _Rows:
    """The shape of the tensors whose rows are computed with: all axes but the last, and the length of a row.

    The length is 1 where there is one number for each row only.
    """

    leading: tuple[int, ...]
    length: int

    def with_rows(self, other: _Rows | None) -> _Rows | None:
        """What fits both."""
        if other is None or self.leading != other.leading:
            return None
        longer, shorter = max(self.length, other.length), min(self.length, other.length)
        return _Rows(self.leading, longer) if shorter in (1, longer) else None


def join_rows(graph: Graph, regions: Sequence[Region]) -> list[Region]:
    """Joins regions of integers in which each row of the output is made of the same row of what they read.

    Regions that reduce no row stay as they are, as do those of which a single number of each row is read outside.
    """
    groups = [[region] for region in regions]
    rows = [_rows_of(region, graph) for region in regions]
    place = {symbol: i for i, region in enumerate(regions) for symbol in region.outputs}
    read = [{place[s] for s in region.inputs if s in place} for region in regions]
    for i, region in enumerate(regions):
        for j in sorted({place[s] for s in region.inputs if s in place}, reverse=True):
            own = rows[i]
            both = None if own is None else own.with_rows(rows[j])
            if both is None or _size(groups[i]) + _size(groups[j]) > MAX_ROW_SYMBOLS:
                continue
            if any(_reaches(other, j, read) for other in read[i] - {j}):
                continue
            groups[j] += groups[i]
            rows[j] = both
            groups[i] = []
            read[j] = (read[j] | read[i]) - {j}
            for each in read:
                if i in each:
                    each.discard(i)
                    each.add(j)
            place |= {symbol: j for symbol, at in place.items() if at == i}
            break
    joined = {i: _joined(group, graph) for i, group in enumerate(groups) if group}
    return [region for i in _ordered(read, joined) for region in joined[i]]


def _size(group: Sequence[Region]) -> int:
    return sum(len(region.symbols) for region in group)


def _rows_of(region: Region, graph: Graph) -> _Rows | None:
    """The rows that all of a region computes with; None where it does anything else."""
    computed = [s for s in region.inputs if graph.value(s) is None]
    tensors = [*region.symbols, *computed]
    shape = max((s.shape for s in tensors), key=lambda shape: (len(shape), shape[-1:]))
    if len(shape) < 2 or not all(s.type.is_integer for s in tensors):
        return None
    kinds = {kind_of(symbol) for symbol in region.symbols}
    if not kinds <= {Kind.ELEMENTWISE, Kind.STEPS, Kind.REDUCTION}:
        return None
    if any(s.shape[:-1] != shape[:-1] or s.shape[-1:] not in (shape[-1:], (1,)) for s in tensors):
        return None
    reduced = [s for s in region.symbols if kind_of(s) is Kind.REDUCTION]
    return None if any(s.shape == s.inputs[0].shape for s in reduced) else _Rows(shape[:-1], shape[-1])


def _reaches(start: int, end: int, read: Sequence[set[int]]) -> bool:
    """Whether what `start` computes depends on `end`."""
    visited, found = {start}, [start]
    while found:
        for each in read[found.pop()]:
            if each == end:
                return True
            if each not in visited:
                visited.add(each)
                found.append(each)
    return False


def _joined(group: Sequence[Region], graph: Graph) -> list[Region]:
    """One region, or those of the group where one would be of no use."""
    symbols = [symbol for region in group for symbol in region.symbols]
    inside = set(symbols)
    outputs = [s for s in symbols if s in graph.outputs or any(r not in inside for r in graph.consumers[s])]
    if any(kind_of(symbol) is Kind.NORMALIZATION for symbol in symbols):
        return [replace(region, stored=_stored(region.symbols, graph)) for region in group]
    whole = {s.shape for s in symbols if kind_of(s) is Kind.REDUCTION for s in s.inputs[:1]}
    if len(group) < 2 or not whole or {s.shape for s in outputs} != whole:
        return list(group)
    return [replace(region_of(symbols, outputs), stored=_stored(symbols, graph))]


def _stored(symbols: Sequence[Symbol], graph: Graph) -> tuple[Symbol, ...]:
    """What is read several times, or as a row: it is computed once."""
    inside, found = set(symbols), []
    for symbol in symbols:
        readers = [reader for reader in graph.consumers[symbol] if reader in inside]
        staged = any(kind_of(reader) in (Kind.REDUCTION, Kind.STEPS) for reader in readers)
        broadcast = any(reader.shape != symbol.shape for reader in readers)
        if kind_of(symbol) is Kind.ELEMENTWISE and (len(readers) > 1 or staged or broadcast):
            found.append(symbol)
    return tuple(found)


def _ordered(read: Sequence[set[int]], groups: dict[int, list[Region]]) -> list[int]:
    """The groups in an order in which each follows those that it reads: the first that can be, as they are numbered."""
    done: dict[int, None] = {}
    for i in groups:
        waiting = [i]
        while waiting:
            lacking = [each for each in sorted(read[waiting[-1]]) if each not in done]
            if lacking:
                waiting.extend(reversed(lacking))
            else:
                done.setdefault(waiting.pop())
    return list(done)
