"""Refuses models whose parameters hold NaN or infinity, before anything is made from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.errors import DataError
from mrt.symbol import Graph, Pass, PassResult, Property


def _non_finite(graph: Graph) -> str:
    for name, value in graph.parameters.items():
        if value.dtype.kind != "f":
            continue
        wrong = np.flatnonzero(~np.isfinite(value))
        if wrong.size:
            position = tuple(int(i) for i in np.unravel_index(wrong[0], value.shape))
            return f"parameter {name} holds {value[position]} at {position}, in all {wrong.size} of {value.size} values"
    return ""


FINITE_PARAMETERS = Property("finite parameters", _non_finite)


@dataclass(frozen=True)
class CheckFiniteParameters(Pass):
    """Leaves the graph as it is.

    1. A parameter that holds NaN or infinity: DataError with its name and the first such place.
    """

    ensures = (FINITE_PARAMETERS,)

    def run(self, graph: Graph) -> PassResult:
        found = _non_finite(graph)
        if found:
            raise DataError(f"{found}; finite values are needed, train or export the model again")
        return PassResult(graph)
