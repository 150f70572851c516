"""Limits of clips as parameters, so that kernels that differ in nothing else are one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mrt.backend.memory.storage import BYTES
from mrt.backend.operators.clip_to import ClipTo
from mrt.backend.rewrites.rewrite import Rewrite
from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.operators.activation import Clip
from mrt.symbol.operators.integer import Cast

COMMON = frozenset({0, -127, *(end for ends in DTYPE_RANGES.values() for end in ends)})
"""Limits that layers have alike, and that code is made for: those of what a dtype holds."""
WORTH = 16
"""So many limits of bytes, of clips of one shape, are worth it: code is a little slower where they are parameters."""


@dataclass(frozen=True)
class ClipLimitsAsParameters(Rewrite[Clip]):
    """clip(x, lo, hi) of 16 or 32 bits becomes ClipTo(x, lo, hi) where a limit is none of `COMMON`.

    What is cast to bytes becomes one where WORTH clips of its shape have limits of their own, as in the steps of a
    recurrent layer. The limits of bytes themselves stay part of the conversion.
    """

    about = (Clip,)

    def rewrite(
        self, graph: Graph, symbol: Symbol[Clip], inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        operator = symbol.operator
        if symbol.dtype not in ("int16", "int32"):
            return None
        stored = _stored(graph, symbol)
        if stored and (len(graph.consumers[symbol]) > 1 or self._alike(graph, symbol, stored) < WORTH):
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
        clip_to = ClipTo("least" in limits, "most" in limits, stored)
        return builder.apply(clip_to, [*inputs, *given], symbol.name, symbol.origin)

    def _alike(self, graph: Graph, symbol: Symbol, stored: str) -> int:
        """How many limits clips have that differ in nothing else."""
        return len(self.facts.once(graph, _limits_by_kind)[symbol.type, stored])


def _limits_by_kind(graph: Graph) -> Mapping[tuple[TensorType, str], set[tuple[float, float]]]:
    """The limits of all clips, by the type of what is clipped and the dtype of bytes that it is cast to."""
    found: dict[tuple[TensorType, str], set[tuple[float, float]]] = defaultdict(set)
    for symbol in graph.operators:
        if isinstance(symbol.operator, Clip):
            found[symbol.type, _stored(graph, symbol)].add((symbol.operator.a_min, symbol.operator.a_max))
    return found


def _stored(graph: Graph, symbol: Symbol) -> str:
    """The dtype of bytes that a tensor is cast to; "" if it is to none."""
    casts = (reader.dtype for reader in graph.consumers[symbol] if isinstance(reader.operator, Cast))
    return next((dtype for dtype in casts if dtype in BYTES), "")
