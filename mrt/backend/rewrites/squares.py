"""A tensor times itself is one operator, which reads it once."""

from __future__ import annotations

from dataclasses import dataclass

from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Graph, GraphBuilder, Symbol
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.elementwise import ElemwiseMul
from mrt.symbol.operators.functions import Square


@dataclass(frozen=True)
class Squares(Rewrite):
    """BroadcastMul(x, x) and ElemwiseMul(x, x) in int32 become Square(x), which is fused with what makes x.

    What reads a tensor twice ends its region.
    """

    about = (BroadcastMul, ElemwiseMul)

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if symbol.dtype != "int32" or inputs[0] is not inputs[1]:
            return None
        return builder.apply(Square(), inputs[:1], symbol.name, symbol.origin)
