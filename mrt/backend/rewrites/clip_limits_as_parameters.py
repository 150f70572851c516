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


@dataclass(frozen=True)
class ClipLimitsAsParameters(Rewrite):
    """clip(x, lo, hi) of 16 or 32 bits becomes ClipTo(x, lo, hi) where a limit is none of `COMMON`.

    What is cast to bytes stays, since its limits are part of the conversion.
    """

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        operator = symbol.operator
        if not isinstance(operator, Clip) or symbol.dtype not in ("int16", "int32"):
            return None
        if any(isinstance(reader.operator, Cast) and _is_byte(reader) for reader in graph.consumers[symbol]):
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
        return builder.apply(ClipTo("least" in limits, "most" in limits), [*inputs, *given], symbol.name, symbol.origin)


def _is_byte(symbol: Symbol) -> bool:
    return np.dtype(symbol.dtype).itemsize == 1
