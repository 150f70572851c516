"""What depends on parameters alone is computed once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Graph, GraphBuilder, Symbol
from mrt.symbol.graph import evaluate_symbol


@dataclass(frozen=True)
class ConstantOperators(Rewrite):
    """An operator all of whose inputs are parameters becomes the parameter that it evaluates to.

    So the weights of a network that brings its quantization are dequantized when it is compiled, and are packed like
    others. What has more elements than its inputs together is computed, as a tile is. Outputs are computed.
    """

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        values = [builder.value(source) for source in inputs]
        known = [value for value in values if value is not None]
        is_constant = bool(known) and len(known) == len(values)
        if not is_constant or symbol in graph.outputs or symbol.type.size > sum(value.size for value in known):
            return None
        with np.errstate(all="ignore"):
            value = evaluate_symbol(symbol, known)
        return builder.parameter(symbol.name, value, symbol.origin)
