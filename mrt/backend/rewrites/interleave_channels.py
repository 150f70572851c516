"""A shuffle of channels, which networks make of reshapes, as one operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mrt.backend.operators.interleave import Interleave
from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType
from mrt.symbol.operators.transform import Concat, Reshape, SliceAxis, Transpose

MOST_GROUPS = 64
"""Each group is an operand of its own, of which a kernel has few: networks shuffle up to 8."""


@dataclass(frozen=True)
class InterleaveChannels(Rewrite[Reshape]):
    """Channels of (N, G * C, ...) reshaped to (N, G, C, ...), transposed to (N, C, G, ...) and reshaped back
    become one Interleave of the G groups.

    1. Of a Concat of the groups that nobody else reads, its inputs are interleaved.
    2. Of anything else, its slices.
    """

    about = (Reshape,)

    def rewrite(
        self, graph: Graph, symbol: Symbol[Reshape], inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        groups = _groups(symbol)
        if not groups:
            return None
        if groups > MOST_GROUPS:
            return f"its channels are {groups} groups, and {MOST_GROUPS} are interleaved at most"
        moved = symbol.inputs[0]
        apart, source = moved.inputs[0], moved.inputs[0].inputs[0]
        if any(len(graph.consumers[each]) > 1 or each in graph.outputs for each in (moved, apart)):
            return "what its channels are taken apart to is read by others too"
        data = inputs[0].inputs[0].inputs[0]
        count = symbol.shape[1] // groups
        alone = len(graph.consumers[source]) == 1 and source not in graph.outputs
        if alone and isinstance(data.operator, Concat) and {s.type for s in data.inputs} == {_part(data, groups)}:
            parts = data.inputs
        else:
            cuts = [SliceAxis(axis=1, begin=place * count, end=(place + 1) * count) for place in range(groups)]
            parts = tuple(
                builder.apply(cut, [data], f"{symbol.name}_group{place}", symbol.origin)
                for place, cut in enumerate(cuts)
            )
        return builder.apply(Interleave(), parts, symbol.name, symbol.origin)


def _groups(symbol: Symbol) -> int:
    """How many groups of channels a Reshape ends to shuffle; 0 for any other symbol, and where none changes places."""
    steps: list[Any] = [symbol]
    for kind in (Reshape, Transpose, Reshape):
        if not isinstance(steps[-1].operator, kind):
            return 0
        steps.append(steps[-1].inputs[0])
    _, moved, apart, source = steps
    rank, shape = apart.type.rank, apart.shape
    if source.shape != symbol.shape or rank != source.type.rank + 1 or rank < 3:
        return 0
    kept = shape[:1] + shape[3:] == source.shape[:1] + source.shape[2:]
    shuffles = moved.operator.order(rank) == (0, 2, 1, *range(3, rank)) and not moved.operator.is_identity(apart.type)
    if not kept or not shuffles:
        return 0
    return int(shape[1])


def _part(data: Symbol, groups: int) -> TensorType:
    return data.type.with_shape((data.shape[0], data.shape[1] // groups, *data.shape[2:]))
