"""The protocol by which stages run graphs without knowing who compiles them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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


def prepare_all(runner: Runner, graphs: Iterable[Graph], size: int) -> list[Evaluate]:
    """What runs each of the graphs: by the runner's own `prepare_all`, which makes once what they have in common, or by
    `prepare` for each where it has none.

    graphs: may be made as they are drawn; no more than one is held. size: of the parameters of all, in bytes.
    """
    together: Callable[[Iterable[Graph], int], list[Evaluate]] | None = getattr(runner, "prepare_all", None)
    return [runner.prepare(graph) for graph in graphs] if together is None else together(graphs, size)


class NumpyRunner:
    """Runs graphs by `Graph.evaluate`: exact and slow."""

    def prepare(self, graph: Graph) -> Evaluate:
        return graph.evaluate
