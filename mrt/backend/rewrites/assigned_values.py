"""What a state holds next is a value like any other."""

from __future__ import annotations

from dataclasses import dataclass

from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Graph, GraphBuilder, Symbol
from mrt.symbol.operators.state import Assign


@dataclass(frozen=True)
class AssignedValues(Rewrite[Assign]):
    """assign(V, S, i), the output that an input S holds in the next call, becomes V: S and i are not read for it."""

    about = (Assign,)

    def rewrite(
        self, graph: Graph, symbol: Symbol[Assign], inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        return inputs[0]
