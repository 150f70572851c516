"""Maps that become tokens, and tokens that become maps, with channels last on the way: nothing moves in memory then."""

from __future__ import annotations

from dataclasses import dataclass

from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Graph, GraphBuilder, Symbol
from mrt.symbol.operators.transform import Reshape, Transpose

TURN = (0, 2, 1)
"""The axes of a transpose between [batch, positions, channels] and [batch, channels, positions]."""


@dataclass(frozen=True)
class TokensOfMaps(Rewrite):
    """Of Reshape and Transpose, where nothing else reads what stands between them, X [n, l, c] and Y [n, c, d...]:

    1. reshape(transpose(X)) to [n, c, d...] becomes transpose(reshape(X)), of [n, d..., c].
    2. transpose(reshape(Y)) to [n, l, c] becomes reshape(transpose(Y)), of [n, d..., c].

    As convolutions have channels innermost in memory, both are where they were.
    """

    about = (Reshape, Transpose)

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        between = symbol.inputs[0] if symbol.inputs else symbol
        if graph.consumers[between] != (symbol,) or between in graph.outputs or not between.inputs:
            return None
        if inputs[0].operator != between.operator:  # it was one of another two
            return None
        (data,), rank = inputs[0].inputs[:1], symbol.type.rank
        if _is_turn(between) and _is_apart(symbol, symbol.shape, between.shape):
            batch, channels, *positions = symbol.shape
            made = builder.apply(Reshape(shape=(batch, *positions, channels)), [data], f"{symbol.name}_apart")
            return builder.apply(Transpose(axes=(0, rank - 1, *range(1, rank - 1))), [made], symbol.name, symbol.origin)
        if _is_turn(symbol) and _is_apart(between, data.shape, between.shape):
            axes = (0, *range(2, data.type.rank), 1)
            made = builder.apply(Transpose(axes=axes), [data], f"{symbol.name}_last")
            return builder.apply(Reshape(shape=symbol.shape), [made], symbol.name, symbol.origin)
        return None


def _is_turn(symbol: Symbol) -> bool:
    return isinstance(symbol.operator, Transpose) and symbol.operator.order(symbol.type.rank) == TURN


def _is_apart(reshape: Symbol, apart: tuple[int, ...], together: tuple[int, ...]) -> bool:
    """Whether one of the shapes that a Reshape takes and gives is [n, c, d...] and the other one [n, c, l]."""
    return isinstance(reshape.operator, Reshape) and len(apart) > 3 and len(together) == 3 and apart[:2] == together[:2]
