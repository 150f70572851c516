"""Which operators are computed together: a graph as regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mrt.backend.fusion.join_branches import join_branches
from mrt.backend.fusion.join_rows import join_rows
from mrt.backend.fusion.regions import Region, find_regions
from mrt.symbol import Graph

JOINS: tuple[Callable[[Graph, Sequence[Region]], list[Region]], ...] = (join_branches, join_rows)
"""What makes fewer regions of those that are found, in the order in which they are applied."""


def partition(graph: Graph) -> list[Region]:
    """The regions of a graph, each after those that it reads."""
    regions = find_regions(graph)
    for join in JOINS:
        regions = join(graph, regions)
    return regions
