"""Limits of clips as parameters, so that kernels that differ in nothing else are one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mrt.backend.operators.clip_to import ClipTo
from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Graph, GraphBuilder, Symbol
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.operators.activation import Clip
from mrt.symbol.operators.integer import Cast

COMMON = frozenset({0, -127, *(end for ends in DTYPE_RANGES.values() for end in ends)})
"""Limits that layers have alike, and that code is made for: those of what a dtype holds."""
BYTES = frozenset({"int8", "uint8"})


@dataclass(frozen=True)
class ClipLimitsAsParameters(Rewrite):
    """clip(x, lo, hi) of 16 or 32 bits becomes ClipTo(x, lo, hi) where a limit is none of `COMMON`.

    It knows of bytes that the result is cast to, since limits that bytes have are part of the conversion.
    """

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        operator = symbol.operator
        if not isinstance(operator, Clip) or symbol.dtype not in ("int16", "int32"):
            return None
        stored = {reader.dtype for reader in graph.consumers[symbol] if isinstance(reader.operator, Cast)} & BYTES
        if stored and len(graph.consumers[symbol]) > 1:
            return None
        (least, most), lo, hi = DTYPE_RANGES[symbol.dtype], math.ceil(operator.a_min), math.floor(operator.a_max)
        limits = {"least": lo} if lo > least else {}
        limits |= {"most": hi} if hi < most else {}
        if COMMON.issuperset(limits.values()):
            return None
        shape = (1,) * symbol.type.rank
        given = [
            builder.parameter(f"{symbol.name}_{side}", np.full(shape, limit, symbol.dtype), symbol.origin)
            for side, limit in limits.items()
        ]
        clip_to = ClipTo("least" in limits, "most" in limits, next(iter(stored), ""))
        return builder.apply(clip_to, [*inputs, *given], symbol.name, symbol.origin)
