"""Reshapes that follow each other, as exporters write them around attention and pooling, as one."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Graph, GraphBuilder, Symbol
from mrt.symbol.operators.transform import Flatten, Reshape, Transpose


@dataclass(frozen=True)
class MergeReshapes(Rewrite):
    """Flatten, Reshape, expand_dims, squeeze and transpose that leave elements in their order, behind each other.

    1. Where the last has the shape of what the first one reads, all are gone.
    2. Else one remains: Flatten where it gives rows of samples, which a channel-last memory already is; or Reshape.
    """

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if not _keeps_order(symbol):
            return None
        (source,) = inputs
        while _keeps_order(source):
            (source,) = source.inputs
        if source.shape == symbol.shape and symbol not in graph.outputs:
            return source
        if source is inputs[0] or not symbol.shape:
            return None
        rows = (*source.shape[:1], prod(source.shape[1:]))
        operator = Flatten() if symbol.shape == rows else Reshape(shape=symbol.shape)
        return builder.apply(operator, [source], symbol.name, symbol.origin)


def _keeps_order(symbol: Symbol) -> bool:
    """Whether it gives all elements of its data in their order."""
    if not symbol.inputs:
        return False
    if isinstance(symbol.operator, Transpose):
        return symbol.operator.is_identity(symbol.inputs[0].type)
    return symbol.operator.keeps_order
