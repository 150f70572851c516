"""The protocol by which stages run graphs without knowing who compiles them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from mrt.symbol.graph import Graph
from mrt.symbol.interval import Array

Evaluate = Callable[[Mapping[str, Array]], list[Array]]
"""Arrays by input name, of exactly the graph's shapes, to the outputs in order."""


class Runner(Protocol):
    """Makes graphs executable."""

    def prepare(self, graph: Graph) -> Evaluate:
        """A function that gives the graph's outputs for its inputs; CompilationError if the graph cannot be run.

        It may be called from several threads at once.
        """


class NumpyRunner:
    """Runs graphs by `Graph.evaluate`: exact and slow."""

    def prepare(self, graph: Graph) -> Evaluate:
        return graph.evaluate
