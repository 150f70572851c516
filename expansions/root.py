"""The square root of sums of squares, such as the magnitude of a spectrum: by integers, not by a table."""

from __future__ import annotations

import numpy as np

from expansions.table import expand_table
from mrt.quantization.demand import Demand
from mrt.quantization.expansion import Inputs, expansion
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.quantizer import SMALLEST_SCALE
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Graph, Symbol
from mrt.symbol.operators.functions import Sqrt
from mrt.symbol.operators.integer_math import IntegerSqrt
from mrt.symbol.types import INT32_MAX

FRACTION_BITS = 8
FEW_ENTRIES = 2**12
"""A table of so many entries gives what the data can tell apart."""


def _reads_sum(symbol: Symbol, graph: Graph) -> bool:
    """Whether the data come from an addition, whose integers may have any width."""
    return graph.value(symbol.inputs[0]) is None and not symbol.inputs[0].is_variable


def _demands(symbol: Symbol, graph: Graph) -> tuple[Demand, ...]:
    return (Demand.WIDE if _reads_sum(symbol, graph) else Demand.CHANNELS,)


def _resolution(symbol: Symbol, graph: Graph) -> float:
    """As fine as 32 bits allow: half of the bits of a number are left of its root."""
    return SMALLEST_SCALE if _reads_sum(symbol, graph) else 0.0


@expansion(Sqrt, demands=_demands, resolution=_resolution)
def expand_root(op: Symbol, inputs: Inputs, plan: Plan, builder: IntegerBuilder) -> Quantized:
    """Ye = floor(2^8 sqrt(max(Xq - zx, 0))) at sqrt(sx) / 2^8.

    X comes as its producer gives it, a sum with all the bits that it has: rounded to p bits first, the root of all that
    is below half a step would be 0, which is a share of 2^-(p + 1) / 2 of the largest root. Few integers are a table.

    Error: sqrt(sx) / 2^8, and what the root makes of half a step of X.
    """
    data = inputs.quantized(0)
    bounds = builder.bounds(data.symbol)
    if bounds.max - bounds.min < FEW_ENTRIES or plan.edge(op, 0) is not None:
        return expand_table(op, inputs, plan, builder)
    data = builder.centred(data)
    if builder.bounds(data.symbol).min < 0:
        data = builder.like(builder.clip_to(data.symbol, 0, INT32_MAX), data)
    root = builder.apply(IntegerSqrt(fraction_bits=FRACTION_BITS), [data.symbol])
    return builder.quantized(root, np.sqrt(data.scale) * 2.0**-FRACTION_BITS)
