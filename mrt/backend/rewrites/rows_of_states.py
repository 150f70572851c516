"""A state of which a call changes some rows is changed where it lies."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mrt.backend.operators.update_rows import UpdateRows, rows_along
from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Graph, GraphBuilder, Symbol
from mrt.symbol.operators.selection import Where
from mrt.symbol.operators.state import Assign
from mrt.symbol.states import states_of

ROW = 16
"""Elements of the shortest rows that are told apart: a vector."""


@dataclass(frozen=True)
class RowsOfStates(Rewrite):
    """where(c, R, S), which the state S holds in the next call, becomes update_rows(c, R, S).

    If nothing else reads S, and one element of c is for a whole row, as in the caches of a decoder.
    """

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if not _updates_rows(graph, symbol):
            return None
        return builder.apply(UpdateRows(), inputs, symbol.name, symbol.origin)


def states_in_place(graph: Graph) -> frozenset[str]:
    """The names of the states of a graph that a call may change where they lie."""
    return frozenset(state.name for state in states_of(graph) if _updates_rows(graph, state.output.inputs[0]))


def _updates_rows(graph: Graph, symbol: Symbol) -> bool:
    if not isinstance(symbol.operator, Where):
        return False
    condition, rows, held = symbol.inputs
    if held not in graph.inputs or symbol.type != held.type or condition.type.rank != held.type.rank:
        return False
    if any(graph.value(each) is not None for each in (condition, rows)):
        return False
    others = [reader for reader in graph.consumers[held] if reader is not symbol]
    if not others or not all(_holds_next(reader, symbol) for reader in others):
        return False
    return math.prod(held.shape[rows_along(condition.shape) :]) >= ROW


def _holds_next(reader: Symbol, symbol: Symbol) -> bool:
    """Whether `reader`, which reads a state, says that it holds `symbol` next."""
    return isinstance(reader.operator, Assign) and reader.inputs[0] is symbol
