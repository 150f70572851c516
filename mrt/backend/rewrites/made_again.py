"""Wide integers that are added up, and read by others too, are made once more for the sum of what memory holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.backend.rewrites.rewrite import Rewrite
from mrt.backend.te.registry import Kind, kind_of, repeats_input
from mrt.symbol import Graph, GraphBuilder, Symbol

FEW_OPERATORS = 2
"""Operators that take less time than to store and load what they make."""


@dataclass(frozen=True)
class MadeAgain(Rewrite):
    """The one or two elementwise operators that make a wide tensor of a narrow one are copied for the elementwise
    operators that make of it what a reduction adds up, where others read the wide tensor too.

    So normalizations add up squares of centred bytes: the centred integers are in registers, for the sum and for
    whoever else reads them.
    """

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if not _is_added_up(symbol, graph):
            return None
        made = tuple(
            _copied(given, _steps(source, graph), builder) if source.shape == symbol.shape else given
            for source, given in zip(symbol.inputs, inputs, strict=True)
        )
        return None if made == inputs else builder.reapply(symbol, made)


def _is_added_up(symbol: Symbol, graph: Graph) -> bool:
    """Whether nothing but a reduction reads what an elementwise operator makes, or elementwise operators make of it."""
    while kind_of(symbol) is Kind.ELEMENTWISE and symbol not in graph.outputs and len(graph.consumers[symbol]) == 1:
        (reader,) = graph.consumers[symbol]
        if kind_of(reader) is Kind.REDUCTION:
            return True
        if reader.shape != symbol.shape:
            return False
        symbol = reader
    return False


def _steps(shared: Symbol, graph: Graph) -> int:
    """How many operators make a tensor that several read, of one of fewer bytes; 0 where to copy them does not pay."""
    source, steps = shared, 0
    while steps < FEW_OPERATORS and kind_of(source) is Kind.ELEMENTWISE and not repeats_input(source):
        read = [each for each in source.inputs if each.shape == shared.shape]
        if len(read) != 1 or (len(graph.consumers[source]) == 1 and source is shared):
            return 0
        (source,) = read
        steps += 1
        if np.dtype(source.dtype).itemsize < np.dtype(shared.dtype).itemsize:
            return steps
    return 0


def _copied(symbol: Symbol, steps: int, builder: GraphBuilder) -> Symbol:
    """The symbol made once more by its last so many operators; itself for none."""
    if not steps:
        return symbol
    inputs = [_copied(each, steps - 1, builder) if each.shape == symbol.shape else each for each in symbol.inputs]
    return builder.apply(symbol.operator, inputs, f"{symbol.name}_again", symbol.origin)
