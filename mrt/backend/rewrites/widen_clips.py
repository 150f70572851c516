"""Limits that no value reaches are opened as far as costs nothing."""

from __future__ import annotations

from dataclasses import dataclass

from mrt.backend.rewrites.rewrite import LIMITS_ARE_ATTRIBUTES, Rewrite
from mrt.symbol import Graph, GraphBuilder, Symbol
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.operators.activation import Clip
from mrt.symbol.operators.integer import Cast


@dataclass(frozen=True)
class WidenClips(Rewrite[Clip]):
    """A limit of a Clip that its data is proven not to reach is opened, to where the clip does not act on that side.

    Where the other limit is the end of the dtype that the result is stored in, it is opened to this dtype's other end:
    the two are then one conversion that saturates.
    """

    about = (Clip,)
    requires = (LIMITS_ARE_ATTRIBUTES,)

    def rewrite(
        self, graph: Graph, symbol: Symbol[Clip], inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        operator = symbol.operator
        if symbol.dtype not in DTYPE_RANGES:
            return None
        data = self.facts.bounds(graph)[symbol.inputs[0].name]
        own, stored = DTYPE_RANGES[symbol.dtype], _stored(graph, symbol)
        lo, hi = operator.a_min, operator.a_max
        below, above = data.min < lo, data.max > hi
        if not below:
            lo = min(lo, stored[0] if above and hi == stored[1] else own[0])
        if not above:
            hi = max(hi, stored[1] if below and lo == stored[0] else own[1])
        if (lo, hi) == (operator.a_min, operator.a_max):
            return None
        return builder.apply(Clip(a_min=lo, a_max=hi), inputs, symbol.name, symbol.origin)


def _stored(graph: Graph, symbol: Symbol) -> tuple[int, int]:
    """What the dtype holds that the result is cast to by its only reader."""
    readers = graph.consumers[symbol]
    narrow = len(readers) == 1 and isinstance(readers[0].operator, Cast) and symbol not in graph.outputs
    return DTYPE_RANGES.get(readers[0].dtype if narrow else symbol.dtype, DTYPE_RANGES[symbol.dtype])
