"""What the rewrites of the back end have in common: what they know of the graph that they are given."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from mrt.backend.machine import Machine
from mrt.backend.operators.clip_to import ClipTo
from mrt.backend.rewrites.known_bounds import NOTHING, Bounds, known_bounds
from mrt.symbol import Array, Graph, RewritePass, Symbol
from mrt.symbol.passes import PassResult, Shown, without_operators

Found = TypeVar("Found")
LIMITS_ARE_ATTRIBUTES = without_operators("limits of clips are attributes", ClipTo)


class Facts:
    """What rewrites may rely on.

    machine: which the code is for, None for no machine in particular.
    """

    def __init__(self, machine: Machine | None = None, known: Bounds = NOTHING) -> None:
        """known: intervals of tensors by name; what they leave open follows from dtypes."""
        self.machine, self._known = machine, known
        self._bounds: MutableMapping[Graph, Bounds] = WeakKeyDictionary()
        self._made_from: MutableMapping[Graph, Graph] = WeakKeyDictionary()
        self._found: MutableMapping[Graph, dict[Any, Any]] = WeakKeyDictionary()

    def bounds(self, graph: Graph) -> Bounds:
        """The intervals of all tensors of a graph, by name.

        Derived once for each graph, and only those that were not known of the graph that it was made from.
        """
        if graph not in self._bounds:
            nearest = graph
            while nearest not in self._bounds and nearest in self._made_from:
                nearest = self._made_from[nearest]
            self._bounds[graph] = known_bounds(graph, self._bounds.get(nearest, self._known))
        return self._bounds[graph]

    def once(self, graph: Graph, find: Callable[[Graph], Found]) -> Found:
        """What `find` finds in all of a graph, looked for once."""
        known = self._found.setdefault(graph, {})
        if find not in known:
            known[find] = find(graph)
        found: Found = known[find]
        return found

    def note(self, graph: Graph, source: Graph) -> None:
        """Notes that `graph` was made from `source`, whose names stand for the same values in both."""
        if graph is not source:
            self._made_from[graph] = source


def constant_operands(graph: Graph, symbol: Symbol) -> list[Array] | None:
    """The values of all inputs of a symbol behind the first; None where one is computed."""
    values = [value for source in symbol.inputs[1:] if (value := graph.value(source)) is not None]
    return values if len(values) == len(symbol.inputs) - 1 else None


@dataclass(frozen=True)
class Rewrite(RewritePass[Shown]):
    """Base of the back end's rewrites: the same integers by other operators.

    A symbol that keeps its name keeps its values. Most rewrites are about certain operators by nature: `about` names
    the records of those that are replaced, the docstring those around them.
    """

    facts: Facts = field(default_factory=Facts, compare=False)

    def run(self, graph: Graph) -> PassResult:
        result = super().run(graph)
        self.facts.note(result.graph, graph)
        return result
