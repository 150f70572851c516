"""Elementwise operators behind a join of phases go before it: they are fused with what gives the phases then."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from mrt.backend.operators.join_phases import JoinPhases
from mrt.backend.rewrites.rewrite import Rewrite
from mrt.backend.te.registry import Kind, kind_of
from mrt.symbol import Array, Graph, GraphBuilder, Symbol
from mrt.symbol.operators.table import TableLookup


@dataclass(frozen=True)
class PhasesJoinedLast(Rewrite):
    """f(JoinPhases(X), parameters) of an elementwise f becomes JoinPhases(f(X, parameters of every phase)).

    Where the join is read by f alone, and f makes nothing wider: what is copied is as narrow as the results.
    """

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        places = [i for i, source in enumerate(inputs) if isinstance(source.operator, JoinPhases)]
        if len(places) != 1 or kind_of(symbol) is not Kind.ELEMENTWISE:
            return None
        (place,) = places
        operator, before = inputs[place].operator, symbol.inputs[place]
        if not isinstance(operator, JoinPhases) or symbol.shape != before.shape:
            return None
        if graph.consumers[before] != (symbol,) or before in graph.outputs:
            return "what is joined is read by others too"
        if np.dtype(symbol.dtype).itemsize > np.dtype(before.dtype).itemsize:
            return "its results are wider than what is joined"
        given = list(inputs)
        given[place] = inputs[place].inputs[0]
        for i, source in enumerate(symbol.inputs):
            value = graph.value(source)
            alike = isinstance(symbol.operator, TableLookup) or (value is not None and value.size == 1)
            if i == place or alike:
                continue
            channels = (1, symbol.shape[1], *(1,) * (symbol.type.rank - 2))
            if value is None or value.shape != channels:
                return f"{source.name} has shape {source.shape}; a parameter of {channels} is needed"
            name = f"{symbol.name}_{source.name}_phases"
            given[i] = builder.parameter(name, _of_phases(value, operator), source.origin)
        made = builder.apply(symbol.operator, given, f"{symbol.name}_phases", symbol.origin)
        return builder.apply(operator, [made], symbol.name, symbol.origin)


def _of_phases(value: Array, operator: JoinPhases) -> Array:
    """A parameter of each channel for the channels of all phases."""
    groups = value.reshape(operator.num_group, 1, -1)
    every = np.broadcast_to(groups, (len(groups), prod(operator.stride), groups.shape[2]))
    return np.ascontiguousarray(every).reshape(1, -1, *value.shape[2:])
