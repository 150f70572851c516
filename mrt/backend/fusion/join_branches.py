"""Branches: elementwise regions that read one tensor, such as its requantizations for several readers, joined to the
region that makes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mrt.backend.fusion.regions import (
    MAX_REPEATING,
    MAX_SYMBOLS,
    Region,
    is_narrower,
    joins_uneven,
    region_of,
    repeating,
)
from mrt.backend.te.registry import Kind, joined_axis, kind_of, updated_input
from mrt.symbol import Graph, Symbol


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
        if region in branches or joins_uneven(region.symbols[0]) or updated_input(region.output) is not None:
            continue
        if region.output in graph.outputs:
            found, outputs = _kept_branches(region, readers, graph)
        else:
            found, outputs = _branches(region, readers.get(region.output, []), graph)
        symbols = [*region.symbols, *(symbol for branch in found for symbol in branch.symbols)]
        if found and len(symbols) <= MAX_SYMBOLS and repeating(symbols) <= MAX_REPEATING:
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
    found = [branch for branch in found if is_narrower(branch.output, source)]
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
            is_new = reader.output not in found and not is_narrower(source, reader.output)
            if is_new and _is_elementwise_in([source, *found], reader, graph):
                found[reader.output] = reader
                behind.append(reader.output)
    return list(found.values()), [*found, source]


def _is_elementwise_in(sources: Collection[Symbol], region: Region, graph: Graph) -> bool:
    """Whether a region is elementwise in `sources`, all of its shape, and parameters."""
    elementwise = all(kind_of(symbol) is Kind.ELEMENTWISE for symbol in region.symbols)
    computed = [symbol for symbol in region.inputs if graph.value(symbol) is None]
    return elementwise and all(symbol in sources and symbol.shape == region.output.shape for symbol in computed)
