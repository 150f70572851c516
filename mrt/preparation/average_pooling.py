"""Writes averages as sums times a constant."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mrt.preparation.constants import multiply_by_constant
from mrt.symbol import Array, Graph, GraphBuilder, Property, RewritePass, Symbol
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.reduce import Mean, Sum


def _averages(graph: Graph) -> str:
    for symbol in graph.operators:
        operator = symbol.operator
        if isinstance(operator, Mean) or (isinstance(operator, Pooling) and operator.pool_type == "avg"):
            return f"{symbol.name} ({symbol.op})"
    return ""


@dataclass(frozen=True)
class AveragePoolingToSum(RewritePass):
    """Averages become sums; what they divide by becomes a factor.

    1. Average Pooling, also global: the sum Pooling with the same window, times 1 / count. The count varies with the
       position where the border counts differently, so the factor is (1, 1, *spatial), cut to length 1 along every axis
       where it is uniform.
    2. mean: sum times 1 / number of elements.

    The product keeps the symbol's name; the sum is called NAME_sum.
    """

    ensures = (Property("no average", _averages),)

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        operator = symbol.operator
        if isinstance(operator, Mean):
            factor = np.full((1,) * symbol.type.rank, symbol.type.size / inputs[0].type.size)
            total = builder.apply(Sum(operator.axis, operator.keepdims, operator.exclude), inputs, _sum_name(symbol))
        elif isinstance(operator, Pooling) and operator.pool_type == "avg":
            factor = _reciprocal_counts(operator, inputs[0].shape[2:])
            total = builder.apply(replace(operator, pool_type="sum"), inputs, _sum_name(symbol))
        else:
            return None
        return multiply_by_constant(builder, total, factor, symbol.name, f"{symbol.name}_factor")


def _sum_name(symbol: Symbol) -> str:
    return f"{symbol.name}_sum"


def _reciprocal_counts(operator: Pooling, spatial: tuple[int, ...]) -> Array:
    """1 / what each window's sum is divided by, of shape (1, 1, *output spatial).

    The pooling of an image of ones has the elements of each window as its sum, and elements / count as its average.
    """
    ones = np.ones((1, 1, *spatial))
    elements = replace(operator, pool_type="sum").evaluate(ones)
    factor: Array = np.asarray(operator.evaluate(ones), np.float64) / np.asarray(elements, np.float64)
    return factor
