"""A graph that is run in several processes, compiled in each when it is first run there."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import Any

from mrt.collector import paused_collector
from mrt.symbol import Array, Evaluate, Graph, Runner
from mrt.symbol.files import graph_from_bytes, graph_to_bytes


class Program:
    """A graph and what runs it. It travels as the files of the graph, its code stays where it was made."""

    def __init__(self, graph: Graph, runner: Runner) -> None:
        self.graph, self.runner = graph, runner
        self._lock = Lock()
        self._evaluate: Evaluate | None = None

    def __call__(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The graph's outputs for arrays by input name; what the runner raises. Called from several threads at once."""
        return self.compiled()(feeds)

    def compiled(self) -> Evaluate:
        """What runs the graph, made if it is not yet."""
        with self._lock:
            if self._evaluate is None:
                with paused_collector():
                    self._evaluate = self.runner.prepare(self.graph)
            return self._evaluate

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (*graph_to_bytes(self.graph), self.runner)


def _arrived(symbols: bytes, parameters: bytes, runner: Runner) -> Program:
    return Program(graph_from_bytes(symbols, parameters, "the program", "the program's parameters"), runner)
