"""Guards of softmaxes against NaN, which no softmax of finite scores gives."""

from __future__ import annotations

from dataclasses import dataclass

from mrt.symbol import Graph, GraphBuilder, RewritePass, Symbol
from mrt.symbol.operators.finite import IsNan
from mrt.symbol.operators.normalization import Softmax
from mrt.symbol.operators.selection import Where


@dataclass(frozen=True)
class NanGuards(RewritePass):
    """Drops what replaces NaN among the results of a softmax, as exporters of attention write it.

    kept: names of symbols that must stay, such as those before which the graph will be cut.

    1. where(isnan(Y), X, Y), Y a softmax: Y. It is NaN where all scores of a row are minus infinity, and such rows are
       made finite too (FiniteMasks).
    """

    kept: frozenset[str] = frozenset()

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if not isinstance(symbol.operator, Where) or symbol.name in self.kept:
            return None
        asked, _, shares = symbol.inputs
        is_guard = isinstance(asked.operator, IsNan) and asked.inputs[0] is shares and symbol.type == shares.type
        return inputs[2] if is_guard and isinstance(shares.operator, Softmax) else None
