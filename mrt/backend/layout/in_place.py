"""Results in place: whose memory the result of a region may take, since the region is the last to read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mrt.backend.fusion.regions import Region
from mrt.backend.layout.layouts import Layouts
from mrt.backend.te.registry import Kind, kind_of, random_access_inputs, updated_input
from mrt.symbol import Graph, Symbol


def last_readers(graph: Graph, regions: Sequence[Region], layouts: Layouts) -> dict[Symbol, Region]:
    """The last region that reads each memory, by its owner; none for what is read when all regions are computed."""
    last = {layouts.owner(source): region for region in regions for source in region.inputs}
    for output in graph.outputs:
        last.pop(layouts.owner(output), None)
    return last


def in_place(
    region: Region, graph: Graph, layouts: Layouts, last: Mapping[Symbol, Region]
) -> tuple[Region, Symbol | None]:
    """The region, and its input over which the last output is written; None where no input serves.

    Such an input dies in the region, lies in memory as the output does, and each of its elements is read where that of
    the output is computed only: the sum of a residual block, say. Outputs are stored one after the other, so that the
    one in place becomes the last. What changes some rows of its input does so wherever that lies. last: see
    `last_readers`.
    """
    if region.stored is not None:
        return region, None
    updated = updated_input(region.output)
    if updated is not None:
        return region, updated
    for output in reversed(region.outputs):
        if output in graph.outputs or layouts.owner(output) is not output:
            continue
        for source in region.inputs:
            if last.get(source) is region and _is_replaceable(source, output, region, graph, layouts):
                outputs = (*(each for each in region.outputs if each is not output), output)
                return replace(region, outputs=outputs), source
    return region, None


def _is_replaceable(source: Symbol, output: Symbol, region: Region, graph: Graph, layouts: Layouts) -> bool:
    """Whether `source` is a tensor of its own that lies as `output` does and is read element by element."""
    if source.is_variable or graph.value(source) is not None or layouts.owner(source) is not source:
        return False
    if layouts.storages[source] != layouts.storages[output]:
        return False
    if sum(layouts.owner(each) is source for each in region.inputs if graph.value(each) is None) > 1:
        return False
    readers = [(symbol, i) for symbol in region.symbols for i, each in enumerate(symbol.inputs) if each is source]
    return all(
        kind_of(symbol) is Kind.ELEMENTWISE
        and symbol.shape == output.shape
        and index not in random_access_inputs(symbol)
        for symbol, index in readers
    )
