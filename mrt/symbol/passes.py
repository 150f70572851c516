"""Passes: what goes in comes out changed, with contracts that are checked and reasons for what was left alone.

`BasePass` and `run_in_order` serve whatever is passed, `Pass` and `run_passes` graphs.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, cast

from typing_extensions import TypeVar

from mrt.errors import GraphError, MRTError
from mrt.symbol.builder import GraphBuilder, rewrite_graph
from mrt.symbol.graph import Graph
from mrt.symbol.operator import Operator
from mrt.symbol.symbol import Symbol

_Passed = TypeVar("_Passed")
Shown = TypeVar("Shown", bound=Operator, default=Operator)
"""The record of the operators that a `RewritePass` is about."""


@dataclass(frozen=True)
class Property:
    """Something that holds of what is passed: `violation` names a part of it that breaks it, or gives ""."""

    name: str
    violation: Callable[[Any], str] = field(compare=False)

    def check(self, passed: object, who: str) -> None:
        """GraphError, naming who asks, if the property does not hold."""
        found = self.violation(passed)
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
class BaseResult(Generic[_Passed]):
    """What a pass made, what it left alone, and what it changed that is to be known."""

    made: _Passed
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PassResult(BaseResult[Graph]):
    """What a pass made of a graph."""

    @property
    def graph(self) -> Graph:
        return self.made


@dataclass(frozen=True)
class BasePass(ABC, Generic[_Passed]):
    """Base of passes: the fields of the subclass are its options. What is given is never changed.

    `requires` and `ensures` are properties that `run_in_order` checks before and after.
    """

    requires: ClassVar[tuple[Property, ...]] = ()
    ensures: ClassVar[tuple[Property, ...]] = ()

    @property
    def name(self) -> str:
        """The pass's name in configs and messages: FoldBatchNorm is fold_batch_norm."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", type(self).__name__).lower()

    @abstractmethod
    def run(self, passed: _Passed, /) -> BaseResult[_Passed]:
        """What it becomes, and the refusals."""


@dataclass(frozen=True)
class Pass(BasePass[Graph]):
    """Base of passes on graphs."""

    def __call__(self, graph: Graph) -> Graph:
        return self.run(graph).graph

    @abstractmethod
    def run(self, graph: Graph, /) -> PassResult:
        """The new graph and the refusals."""


@dataclass(frozen=True)
class RewritePass(Pass, Generic[Shown]):
    """A pass that looks at each operator symbol once, in order.

    about: the records of the operators that it may replace: it is shown no others. `Shown` is the record where there
    is one.
    """

    about: ClassVar[tuple[type[Operator], ...]] = (Operator,)

    def run(self, graph: Graph) -> PassResult:
        refusals: list[Refusal] = []

        def step(symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder) -> Symbol | None:
            result = self.rewrite(graph, cast("Symbol[Shown]", symbol), inputs, builder)
            if isinstance(result, str):
                refusals.append(Refusal(symbol.name, result))
                return None
            return result

        return PassResult(rewrite_graph(graph, step, self.about), tuple(refusals))

    @abstractmethod
    def rewrite(
        self, graph: Graph, symbol: Symbol[Shown], inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        """The symbol's replacement, None to leave it alone, or the reason (a text) why it had to be left alone.

        graph: the graph being rewritten, to which `symbol` belongs. inputs: what its inputs have become.
        """


def run_in_order(passed: _Passed, passes: Sequence[BasePass[_Passed]]) -> BaseResult[_Passed]:
    """Runs passes in order, checking what each requires and ensures; an error names the pass and those before it."""
    refusals: list[Refusal] = []
    notes: list[str] = []
    done: list[str] = []
    for step in passes:
        for needed in step.requires:
            needed.check(passed, f"pass {step.name} (after {', '.join(done) or 'none'})")
        try:
            result = step.run(passed)
        except MRTError as error:
            raise type(error)(f"pass {step.name} (after {', '.join(done) or 'none'}): {error}") from error
        for promised in step.ensures:
            promised.check(result.made, f"pass {step.name}")
        passed = result.made
        refusals.extend(Refusal(r.symbol, f"{step.name}: {r.reason}") for r in result.refusals)
        notes.extend(result.notes)
        done.append(step.name)
    return BaseResult(passed, tuple(refusals), tuple(notes))


def run_passes(graph: Graph, passes: Sequence[Pass]) -> PassResult:
    """`run_in_order` of a graph."""
    result = run_in_order(graph, passes)
    return PassResult(result.made, result.refusals, result.notes)
