"""Sums that are moved are rounded before: fewer bytes move, and the rounding is fused with what gives the sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mrt.backend.rewrites.rewrite import Rewrite, constant_operands
from mrt.backend.te.registry import Kind, kind_of
from mrt.symbol import Array, Graph, GraphBuilder, Symbol
from mrt.symbol.operators.table import TableLookup
from mrt.symbol.places import before_moves


@dataclass(frozen=True)
class NarrowBeforeMoving(Rewrite):
    """f(move(X), parameters) becomes move(f(X, parameters)), f being elementwise and one of those that narrow X.

    move: Reshape, transpose and others that keep every element, one or several. Nothing else reads what stands between.
    A parameter is one number, or one for each place along an axis of X, such as its channels.
    """

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        values = _parameters(graph, symbol)
        if values is None or not (movers := _movers(graph, symbol, inputs)):
            return None
        data = movers[0].inputs[0]
        if data.operator.keeps_elements or builder.value(data) is not None or not _narrows(graph, symbol, data.dtype):
            return None
        given = [data]
        for source, value in zip(symbol.inputs[1:], values, strict=True):
            before = _before(value, movers)
            if before is None:
                return f"{source.name} varies along several axes of {data.name}"
            given.append(builder.parameter(f"{symbol.name}_{source.name}_unmoved", before, source.origin))
        made = builder.apply(symbol.operator, given, f"{symbol.name}_unmoved", symbol.origin)
        for mover in movers[:-1]:
            made = builder.apply(mover.operator, [made], f"{symbol.name}_on_its_way", symbol.origin)
        return builder.apply(movers[-1].operator, [made], symbol.name, symbol.origin)


def _movers(graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...]) -> list[Symbol]:
    """What moved the first input of a symbol, the first of them first; none where others read that, too."""
    read, data = symbol.inputs[0], inputs[0]
    found: list[Symbol] = []
    while data.operator.keeps_elements and graph.consumers[read] == (symbol,) and read not in graph.outputs:
        found.append(data)
        data = data.inputs[0]
        if read.operator.keeps_elements:  # else it was an elementwise operator, before which these have come to be
            symbol, read = read, read.inputs[0]
    return found[::-1]


def _parameters(graph: Graph, symbol: Symbol) -> list[Array] | None:
    """The values of the inputs of an elementwise operator behind the first; None where it is another, or has others."""
    if not symbol.inputs or kind_of(symbol) is not Kind.ELEMENTWISE or isinstance(symbol.operator, TableLookup):
        return None
    return constant_operands(graph, symbol) if symbol.shape == symbol.inputs[0].shape else None


def _narrows(graph: Graph, symbol: Symbol, dtype: str) -> bool:
    """Whether a symbol, or elementwise operators behind that alone read it, make fewer bytes of each element."""
    while np.dtype(symbol.dtype).itemsize >= np.dtype(dtype).itemsize:
        readers = graph.consumers[symbol]
        if len(readers) != 1 or symbol in graph.outputs or readers[0].inputs[0] is not symbol:
            return False
        (symbol,) = readers
        if _parameters(graph, symbol) is None:
            return False
    return True


def _before(value: Array, movers: Sequence[Symbol]) -> Array | None:
    """A parameter behind movers as it is before them: for all elements, or along the first axis where that can be."""
    rank = movers[0].inputs[0].type.rank
    if value.size == 1:
        return value.reshape((1,) * rank)
    for axis in range(rank):
        vector = before_moves(value, movers, axis)
        if vector is not None:
            return vector.reshape(tuple(-1 if a == axis else 1 for a in range(rank)))
    return None
