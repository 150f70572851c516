"""What quantization makes of a graph, and how its inputs are quantized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from mrt.quantization.integer.quantized import Quantized
from mrt.quantization.quantizer import Target
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.quantized_tensor import TensorQuantization


@dataclass(frozen=True, eq=False)
class IntegerGraph:
    """What quantization makes: the integer graph, its inputs and outputs with their scales, and all scales by name.

    An input's range is what its quantizer saturates to. corrections: what was added to the real output of reductions,
    by the name of the prepared float symbol, one value for each output channel.
    """

    graph: Graph
    inputs: tuple[tuple[Symbol, Target], ...]
    outputs: tuple[Quantized, ...]
    scales: Mapping[str, Array]
    zero_points: Mapping[str, Array]
    notes: tuple[str, ...] = ()
    corrections: Mapping[str, Array] = field(default_factory=dict)


def input_quantization(symbol: Symbol, target: Target) -> TensorQuantization:
    """How real values become the integers of an input of the integer graph."""
    return TensorQuantization(
        symbol.name,
        symbol.shape,
        symbol.dtype,
        np.float64(target.scale),
        target.zero_point,
        target.lo,
        target.hi,
        target.pinned,
        target.rounding,
        target.zero_point_first,
    )


def input_target(target: Target) -> Target:
    """A target whose scale is a float32, as the quantization of float inputs needs."""
    if target.exact:
        return target
    scale = float(np.nextafter(np.float32(target.scale), np.float32(np.inf)))
    return replace(target, scale=scale)
