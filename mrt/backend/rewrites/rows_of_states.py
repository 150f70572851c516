"""A state of which a call changes some rows is changed where it lies."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mrt.backend.operators.update_rows import UpdateRows, rows_along
from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Graph, GraphBuilder, Symbol
from mrt.symbol.operators.selection import Where
from mrt.symbol.states import State, is_cache, states_of

ROW = 16
"""Elements of the shortest rows that are told apart: a vector."""


@dataclass(frozen=True)
class RowsOfStates(Rewrite[Where]):
    """where(c, R, S), which the state S holds in the next call, becomes update_rows(c, R, S).

    If nothing else reads S, and one element of c is for a whole row, as in the caches of a decoder.
    """

    about = (Where,)

    def rewrite(
        self, graph: Graph, symbol: Symbol[Where], inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if not any(state.output.inputs[0] is symbol and _gets_rows(graph, state) for state in states_of(graph)):
            return None
        return builder.apply(UpdateRows(), inputs, symbol.name, symbol.origin)


def states_in_place(graph: Graph) -> frozenset[str]:
    """The names of the states of a graph that a call may change where they lie."""
    return frozenset(state.name for state in states_of(graph) if _gets_rows(graph, state))


def _gets_rows(graph: Graph, state: State) -> bool:
    if not is_cache(graph, state):
        return False
    condition, rows, held = state.output.inputs[0].inputs
    if any(graph.value(each) is not None for each in (condition, rows)):
        return False
    if condition.type.rank != held.type.rank or state.output.type != held.type:
        return False
    return math.prod(held.shape[rows_along(condition.shape) :]) >= ROW
