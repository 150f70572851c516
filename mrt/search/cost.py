"""What a network costs: multiplications weighted by their kernels, bytes of parameters, bits of weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mrt.errors import ConfigError
from mrt.messages import short
from mrt.quantization.cost import NARROW_BITS, WIDE_FACTOR, multiplications
from mrt.quantization.options import MOST_BITS
from mrt.search.space import Kind, Space, Widths
from mrt.symbol import Graph

Objective = Literal["latency", "bytes", "bits"]
OBJECTIVES: tuple[Objective, ...] = ("latency", "bytes", "bits")
LATENCY_SHARE = 0.1
"""What a multiplication more weighs where bytes or bits are minimised: ten percent more of them like one of these."""

DIGITS = 2
"""Of what was measured: times that agree in these differ by chance."""


def objective_of(name: object) -> Objective:
    """The objective of a name; ConfigError where there is none of it."""
    for objective in OBJECTIVES:
        if objective == name:
            return objective
    raise ConfigError(f"objective is {short(name)}; {', '.join(OBJECTIVES[:-1])} or {OBJECTIVES[-1]} is needed")


@dataclass(frozen=True)
class Cost:
    """latency: multiplications, weighted, over what they would be in bytes. bytes: of all parameters as they are saved.
    bits: the mean of weights. relative_bytes: over one for each weight. measured: milliseconds of a sample on another
    device, if one is tuned for, which are then its latency; 0 where none is."""

    latency: float
    bytes: int
    bits: float
    relative_bytes: float
    measured: float = 0.0

    def of(self, objective: Objective) -> float:
        """What is minimised: 1 where all is in bytes, more or less as it costs more or less, or what was measured."""
        if objective == "latency" and self.measured:
            return float(f"{self.measured:.{DIGITS}g}")
        extra = LATENCY_SHARE * (self.latency - 1)
        return {"latency": self.latency, "bytes": self.relative_bytes + extra, "bits": self.bits / NARROW_BITS + extra}[
            objective
        ]


def cost_of(graph: Graph, bits: float, weights: int) -> Cost:
    """The cost of an integer graph. bits: the mean bits of its weights. weights: how many there are."""
    plain = weighted = 0.0
    for symbol in graph.operators:
        count = multiplications(symbol)
        plain += count
        is_wide = any(np.dtype(source.dtype).itemsize > 1 for source in symbol.inputs[:2])
        weighted += count * (WIDE_FACTOR if is_wide else 1.0)
    stored = sum(value.nbytes for value in graph.parameters.values())
    return Cost(weighted / plain if plain else 1.0, stored, bits, stored / max(weights, 1))


def predicted(space: Space, objective: Objective) -> dict[tuple[Kind, str, int], float]:
    """What each width of each item adds to the cost, by the same measure as `Cost.of`, costs adding up.

    A layer of which both the data and the weight are wide counts twice, which is more than it costs. A value of two
    bytes counts like a multiplication, so that what gains nothing is not widened.
    """
    weights, total = sum(item.size for item in space.items) or 1, space.multiplications or 1
    share = 1.0 if objective == "latency" else LATENCY_SHARE
    found: dict[tuple[Kind, str, int], float] = {}
    for item in space.items:
        wide = share * ((WIDE_FACTOR - 1) * item.multiplications + item.values) / total
        for bits in range(2, MOST_BITS + 1):
            slower = wide if bits > NARROW_BITS else 0.0
            stored = {"latency": 0.0, "bytes": 1.0 + (bits > NARROW_BITS), "bits": bits / NARROW_BITS}[objective]
            found[item.kind, item.name, bits] = slower + stored * item.size / weights
    return found


def predicted_cost(space: Space, widths: Widths, objective: Objective) -> float:
    """The sum over all items."""
    costs = predicted(space, objective)
    return sum(costs[(*key, bits)] for key, bits in widths.items())
