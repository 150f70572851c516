"""Masks of minus infinity before a softmax, which forbid an element, by a finite number that forbids it as well."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mrt.symbol import Array, Graph, Pass, PassResult
from mrt.symbol.masks import forbids

FORBIDDEN = np.float32(-1e30)
"""Added to any score it is itself in float32, and so has the power 0 beside any score that is allowed."""


@dataclass(frozen=True)
class FiniteMasks(Pass):
    """Makes parameters finite, for every input.

    1. A parameter of minus infinity and finite values that only says which scores softmaxes share out: FORBIDDEN
       instead of minus infinity. A row that is forbidden as a whole would give NaN; it gives equal shares.
    """

    def run(self, graph: Graph) -> PassResult:
        made = {
            symbol.name: np.where(np.isneginf(value), FORBIDDEN, value).astype(value.dtype)
            for symbol in graph.symbols
            if (value := graph.value(symbol)) is not None and _has_minus_infinity(value) and forbids(graph, symbol)
        }
        return PassResult(replace(graph, parameters={**graph.parameters, **made}) if made else graph)


def _has_minus_infinity(value: Array) -> bool:
    return (
        value.dtype.kind == "f" and bool(np.isneginf(value).any()) and not (np.isnan(value) | np.isposinf(value)).any()
    )
