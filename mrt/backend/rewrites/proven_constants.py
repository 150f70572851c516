"""What bounds prove to be one value is not computed."""

from __future__ import annotations

from dataclasses import dataclass

from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Graph, GraphBuilder, Symbol
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.operators.arrangement import Tile


@dataclass(frozen=True)
class ProvenConstants(Rewrite):
    """A tensor whose lowest and highest values are equal becomes tile(C), of a constant C with one element along each
    axis that it does not vary along.

    So what it was computed from is not computed, as of a branch whose last scales are 0, or whose rounding leaves
    nothing. Outputs are computed.
    """

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if symbol.dtype not in DTYPE_RANGES or symbol in graph.outputs or _is_tiled_constant(graph, symbol):
            return None
        bounds = self.facts.bounds(graph)[symbol.name]
        if not bounds.lo.size or not bounds.is_constant:
            return None
        value = builder.parameter(f"{symbol.name}_proven", bounds.lo.astype(symbol.dtype), symbol.origin)
        reps = tuple(whole // length for whole, length in zip(symbol.shape, value.shape, strict=True))
        return builder.apply(Tile(reps=reps), [value], symbol.name, symbol.origin)


def _is_tiled_constant(graph: Graph, symbol: Symbol) -> bool:
    return isinstance(symbol.operator, Tile) and all(graph.value(source) is not None for source in symbol.inputs)
