"""A batch normalisation as a product and a sum, which are computed with the layer before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.backend.rewrites.rewrite import Rewrite, constant_operands
from mrt.symbol import Graph, GraphBuilder, Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.normalization import BatchNorm


@dataclass(frozen=True)
class BatchNormAsScale(Rewrite[BatchNorm]):
    """BatchNorm by constants becomes x scale + offset (`BatchNorm.factors`), by one number of each for a channel.

    What is left of them when a network is prepared for quantizing is so already; this is for float networks as they
    are read.
    """

    about = (BatchNorm,)

    def rewrite(
        self, graph: Graph, symbol: Symbol[BatchNorm], inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        operator = symbol.operator
        values = constant_operands(graph, symbol)
        if values is None:
            return "its mean, variance, gamma or beta is computed"
        shape = [1] * symbol.type.rank
        shape[operator.axis % len(shape)] = -1
        with np.errstate(all="ignore"):
            factors = [each.reshape(shape).astype(symbol.dtype) for each in operator.factors(*values)]
        if not all(np.isfinite(each).all() for each in factors):
            return "its variance is negative, or is 0 without an eps, or its factors overflow"
        scale, offset = (
            builder.parameter(f"{symbol.name}_{name}", value, symbol.origin)
            for name, value in zip(("scale", "offset"), factors, strict=True)
        )
        scaled = builder.apply(BroadcastMul(), [inputs[0], scale], f"{symbol.name}_scaled", symbol.origin)
        return builder.apply(BroadcastAdd(), [scaled, offset], symbol.name, symbol.origin)
