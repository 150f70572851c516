"""Passes: graph in, graph out, with contracts that are checked and reasons for what was left alone."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from mrt.errors import GraphError, MRTError
from mrt.symbol.builder import GraphBuilder, rewrite_graph
from mrt.symbol.graph import Graph
from mrt.symbol.operator import Operator
from mrt.symbol.symbol import Symbol


@dataclass(frozen=True)
class Property:
    """Something that holds of a graph: `violation(graph)` names a symbol that breaks it, or gives ""."""

    name: str
    violation: Callable[[Graph], str] = field(compare=False)

    def check(self, graph: Graph, who: str) -> None:
        """GraphError, naming who asks, if the property does not hold."""
        found = self.violation(graph)
        if found:
            raise GraphError(f"{who}: {self.name} does not hold: {found}")


def without_operators(name: str, *records: type[Operator]) -> Property:
    """The property that a graph holds no operator of these records."""

    def violation(graph: Graph) -> str:
        return next((f"{s.name} ({s.op})" for s in graph.operators if isinstance(s.operator, records)), "")

    return Property(name, violation)


@dataclass(frozen=True)
class Refusal:
    """Why a pass left a symbol alone that it might have changed."""

    symbol: str
    reason: str

    def __str__(self) -> str:
        return f"{self.symbol}: {self.reason}"


@dataclass(frozen=True)
class PassResult:
    """What a pass made, what it left alone, and what it changed that is to be known."""

    graph: Graph
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pass(ABC):
    """Base of passes: the fields of the subclass are its options. The graph given is never changed.

    `requires` and `ensures` are properties that the pass manager checks before and after.
    """

    requires: ClassVar[tuple[Property, ...]] = ()
    ensures: ClassVar[tuple[Property, ...]] = ()

    @property
    def name(self) -> str:
        """The pass's name in configs and messages: FoldBatchNorm is fold_batch_norm."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    def __call__(self, graph: Graph) -> Graph:
        return self.run(graph).graph

    @abstractmethod
    def run(self, graph: Graph) -> PassResult:
        """The new graph and the refusals."""


@dataclass(frozen=True)
class RewritePass(Pass):
    """A pass that looks at each operator symbol once, in order."""

    def run(self, graph: Graph) -> PassResult:
        refusals: list[Refusal] = []

        def step(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
            result = self.rewrite(graph, symbol, inputs, builder)
            if isinstance(result, str):
                refusals.append(Refusal(symbol.name, result))
                return None
            return result

        return PassResult(rewrite_graph(graph, step), tuple(refusals))

    @abstractmethod
    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        """The symbol's replacement, None to leave it alone, or the reason (a text) why it had to be left alone.

        graph: the graph being rewritten, to which `symbol` belongs. inputs: what its inputs have become.
        """


def run_passes(graph: Graph, passes: Sequence[Pass]) -> PassResult:
    """Runs passes in order, checking what each requires and ensures; an error names the pass and those before it."""
    refusals: list[Refusal] = []
    notes: list[str] = []
    done: list[str] = []
    for step in passes:
        for needed in step.requires:
            needed.check(graph, f"pass {step.name} (after {', '.join(done) or 'none'})")
        try:
            result = step.run(graph)
        except MRTError as error:
            raise type(error)(f"pass {step.name} (after {', '.join(done) or 'none'}): {error}") from error
        for promised in step.ensures:
            promised.check(result.graph, f"pass {step.name}")
        graph = result.graph
        refusals.extend(Refusal(r.symbol, f"{step.name}: {r.reason}") for r in result.refusals)
        notes.extend(result.notes)
        done.append(step.name)
    return PassResult(graph, tuple(refusals), tuple(notes))
