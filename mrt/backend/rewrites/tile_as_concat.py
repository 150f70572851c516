"""A tensor tiled along an axis is as many of it side by side."""

from __future__ import annotations

from dataclasses import dataclass

from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Graph, GraphBuilder, Symbol
from mrt.symbol.operators.arrangement import Tile
from mrt.symbol.operators.transform import Concat
from mrt.symbol.passes import Property


def _repeats_several(symbol: Symbol) -> bool:
    if not isinstance(symbol.operator, Tile):
        return False
    shape, reps = symbol.operator.aligned(symbol.inputs[0].shape)
    return any(length > 1 and count > 1 for length, count in zip(shape, reps, strict=True))


REPEATS_SINGLE_ELEMENTS = Property(
    "tiles repeat axes of one element only",
    lambda graph: next((symbol.name for symbol in graph.operators if _repeats_several(symbol)), ""),
)


@dataclass(frozen=True)
class TileAsConcat(Rewrite[Tile]):
    """tile(X) along axes of more than one element becomes Concat(X, X, ...), one for each axis.

    Elements of a tile are X[i mod n]. Where i is a channel of a vector that is filled in part, LLVM 22 reads X[i]
    instead if n is a power of two and the loop over the vector is not unrolled. Axes of one element stay: i mod 1 is 0.
    """

    about = (Tile,)
    ensures = (REPEATS_SINGLE_ELEMENTS,)

    def rewrite(
        self, graph: Graph, symbol: Symbol[Tile], inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        (data,) = inputs
        shape, reps = symbol.operator.aligned(data.shape)
        added = len(shape) - data.type.rank
        steps: list[tuple[Tile | Concat, int]] = [
            (Concat(dim=axis - added), count)
            for axis, (length, count) in enumerate(zip(shape, reps, strict=True))
            if length > 1 and count > 1
        ]
        if not steps:
            return None
        rest = tuple(count if length == 1 else 1 for length, count in zip(shape, reps, strict=True))
        if added or max(rest) > 1:
            steps.append((Tile(reps=rest), 1))
        *inner, (last, copies) = steps
        for operator, count in inner:
            data = builder.apply(operator, [data] * count, f"{symbol.name}_copies", symbol.origin)
        return builder.apply(last, [data] * copies, symbol.name, symbol.origin)
