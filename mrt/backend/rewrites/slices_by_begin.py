"""Slices of one tensor, step after step, by one function that is told where each begins."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np

from mrt.backend.memory.storage import channels_of
from mrt.backend.operators.steps_from import StepsFrom
from mrt.backend.rewrites.rewrite import Rewrite
from mrt.backend.te.registry import Kind, kind_of
from mrt.symbol import Graph, GraphBuilder, Symbol
from mrt.symbol.operators.transform import SliceAxis

WORTH = 4
"""So many slices of one tensor are worth it: what is computed of each is then one kernel instead of as many."""


@dataclass(frozen=True)
class SlicesByBegin(Rewrite[SliceAxis]):
    """slice_axis(X, axis, begin, end) becomes StepsFrom(X, begin), begin a parameter, where X has WORTH such slices.

    So a recurrent layer that is written out step by step takes its steps of what is computed for all of them at once.
    It is done where elements of a slice follow each other in memory, and what reads it is computed with it: a slice
    that is read by itself is a place in the memory of X.
    """

    about = (SliceAxis,)

    def rewrite(
        self, graph: Graph, symbol: Symbol[SliceAxis], inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        operator = symbol.operator
        if not _is_read_with(graph, symbol):
            return None
        (source,) = symbol.inputs
        axis = operator.axis % source.type.rank
        if not _is_in_one_piece(source, axis):
            return None
        alike = (s for s in graph.consumers[source] if isinstance(s.operator, SliceAxis) and s.shape == symbol.shape)
        if len(list(islice(alike, WORTH))) < WORTH:
            return None
        begin = operator.slices(source.type.rank)[axis].indices(source.shape[axis])[0]
        given = builder.parameter(f"{symbol.name}_begin", np.full((1,) * symbol.type.rank, begin, np.int32))
        return builder.apply(StepsFrom(axis, symbol.shape[axis]), [*inputs, given], symbol.name, symbol.origin)


def _is_in_one_piece(source: Symbol, axis: int) -> bool:
    """Whether elements of a slice along an axis follow each other in memory: nothing but 1 stands before that axis, and
    it is not the innermost one."""
    return axis != channels_of(source.type.rank) and max(source.shape[:axis], default=1) == 1


def _is_read_with(graph: Graph, symbol: Symbol) -> bool:
    """Whether one elementwise operator reads a slice, and nothing else does."""
    readers = graph.consumers[symbol]
    return (
        len(readers) == 1
        and symbol not in graph.outputs
        and kind_of(readers[0]) is Kind.ELEMENTWISE
        and readers[0].shape == symbol.shape
    )
