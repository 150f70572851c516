"""Masks: constants that forbid some of the scores that a softmax shares out."""

from __future__ import annotations

import numpy as np

from mrt.symbol.graph import Graph
from mrt.symbol.operation import Operation
from mrt.symbol.operators.normalization import Softmax
from mrt.symbol.operators.selection import Where
from mrt.symbol.symbol import Symbol

LOWERS = -1000.0
"""A mask brings the scores that it forbids down by as much, or more."""


def masked_scores(graph: Graph, symbol: Symbol) -> Symbol | None:
    """The scores that `symbol` adds a constant to, or chooses a constant instead of, for softmaxes alone; None where it
    does something else.
    """
    data = [source for source in shared_out(graph, symbol) if graph.value(source) is None]
    return data[0] if len(data) == 1 else None


def forbidding_condition(graph: Graph, symbol: Symbol, lowers: float) -> Symbol | None:
    """The condition by which `symbol` chooses a constant of `lowers` or less instead of scores, or instead of a
    constant bias of scores, for softmaxes alone."""
    if not isinstance(symbol.operator, Where):
        return None
    if masked_scores(graph, symbol) is None:
        return symbol.inputs[0] if bias_place(graph, symbol, lowers) is not None and forbids(graph, symbol) else None
    constants = [value for source in symbol.inputs[-2:] if (value := graph.value(source)) is not None]
    return symbol.inputs[0] if all(value.max(initial=lowers) <= lowers for value in constants) else None


def bias_place(graph: Graph, symbol: Symbol, lowers: float) -> int | None:
    """The place of the one of two constants that `symbol` chooses between which does not lower scores by `lowers` or
    more; None where it is not one."""
    if not isinstance(symbol.operator, Where):
        return None
    values = {index: graph.value(symbol.inputs[index]) for index in (1, 2)}
    places = [i for i, value in values.items() if value is None or value.max(initial=lowers) > lowers]
    return places[0] if len(places) == 1 and values[places[0]] is not None else None


def shared_out(graph: Graph, symbol: Symbol) -> tuple[Symbol, ...]:
    """The two tensors that `symbol` adds, or chooses between, for softmaxes alone; none where it does otherwise."""
    readers = graph.consumers[symbol]
    if symbol in graph.outputs or not readers or not all(isinstance(reader.operator, Softmax) for reader in readers):
        return ()
    is_sum = symbol.operator.operation is Operation.ADD and len(symbol.inputs) == 2
    return symbol.inputs[-2:] if is_sum or isinstance(symbol.operator, Where) else ()


def biased_mask(graph: Graph, symbol: Symbol) -> tuple[int, int] | None:
    """The places of a constant bias and of a computed mask that `symbol` adds up for scores of softmaxes alone, in this
    order; None where it does something else.
    """
    if symbol.operator.operation is not Operation.ADD or len(symbol.inputs) != 2 or not forbids(graph, symbol):
        return None
    computed = [index for index, source in enumerate(symbol.inputs) if graph.value(source) is None]
    return (1 - computed[0], computed[0]) if len(computed) == 1 else None


def forbids(graph: Graph, symbol: Symbol) -> bool:
    """Whether a tensor does nothing but forbid scores of softmaxes, or lower them, also where a constant bias is added
    to it first.
    """
    stack, seen = [symbol], {symbol}
    while stack:
        source = stack.pop()
        if source in graph.outputs or not graph.consumers[source]:
            return False
        for reader in graph.consumers[source]:
            if source in shared_out(graph, reader):
                continue
            if source not in passed_on(reader) and not _adds_constant(graph, reader):
                return False
            if reader not in seen:
                seen.add(reader)
                stack.append(reader)
    return True


def _adds_constant(graph: Graph, symbol: Symbol) -> bool:
    values = [graph.value(source) for source in symbol.inputs]
    return symbol.operator.operation is Operation.ADD and len(values) == 2 and any(v is not None for v in values)


def passed_on(symbol: Symbol) -> tuple[Symbol, ...]:
    """The tensors whose elements are those of `symbol`."""
    if isinstance(symbol.operator, Where):
        return symbol.inputs[-2:]
    return symbol.inputs[:1] if symbol.operator.keeps_scale else ()


def compared_places(graph: Graph, symbol: Symbol, source: Symbol) -> int | None:
    """How many places of an axis, counted 0, 1, 2, …, `symbol` tells the elements of `source` from; None where none."""
    if symbol.operator.operation is not Operation.SUBTRACT:
        return None
    values = [graph.value(other) for other in symbol.inputs if other is not source]
    counted = values[0].reshape(-1) if len(values) == 1 and values[0] is not None else np.zeros(0)
    return counted.size if counted.size > 2 and np.array_equal(counted, np.arange(counted.size)) else None
