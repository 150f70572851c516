"""A graph that is run in several processes, compiled in each when it is first run there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

from mrt.collector import paused_collector
from mrt.symbol import Array, Evaluate, Graph, Runner
from mrt.symbol.files import graph_from_bytes, graph_to_bytes


class Program:
    """A graph and what runs it. It travels as the files of the graph, its code stays where it was made."""

    def __init__(
        self, graph: Graph | Callable[[], Graph], runner: Runner, prepare: Callable[[], Evaluate] | None = None
    ) -> None:
        """graph: it, or what makes it where it is large and seldom needed. prepare: gives what runs it in this process,
        by default the runner's `prepare`."""
        self._graph, self.runner, self._prepare = graph, runner, prepare
        self._lock = Lock()
        self._evaluate: Evaluate | None = None

    @property
    def graph(self) -> Graph:
        return self._graph if isinstance(self._graph, Graph) else self._graph()

    def __call__(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The graph's outputs for arrays by input name; what the runner raises. Called from several threads at once."""
        return self.compiled()(feeds)

    def compiled(self) -> Evaluate:
        """What runs the graph, made if it is not yet."""
        with self._lock:
            if self._evaluate is None:
                with paused_collector():
                    self._evaluate = self._prepare() if self._prepare else self.runner.prepare(self.graph)
            return self._evaluate

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (*graph_to_bytes(self.graph), self.runner)


def _arrived(symbols: bytes, parameters: bytes, runner: Runner) -> Program:
    return Program(graph_from_bytes(symbols, parameters, "the program", "the program's parameters"), runner)
