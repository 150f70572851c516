"""Who rounds the weights of an expansion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mrt.calibration import Calibration
from mrt.quantization.algorithms.algorithm import Covering, Rounded, Rounding, find_algorithm
from mrt.quantization.algorithms.nearest_rounding import nearest_integers
from mrt.quantization.integer.weights import Accumulator, QuantizedWeight, quantize_weight
from mrt.quantization.options import WeightConfig
from mrt.symbol import Array, Symbol


@dataclass(frozen=True, eq=False)
class Asked:
    """A weight that is to be quantized, as `quantize_weight` takes it."""

    weight: Array
    options: WeightConfig
    ends: list[int]
    accumulator: Accumulator

    def quantized(self, rounded: Rounded = nearest_integers, covering: Covering | None = None) -> QuantizedWeight:
        return quantize_weight(self.weight, self.options, self.ends, self.accumulator, rounded, covering)


Rounder = Callable[[Symbol, Asked], QuantizedWeight]
"""Quantizes the weight of a reduction, a symbol of the prepared float graph."""


@dataclass(frozen=True, eq=False)
class AsAsked:
    """Rounds as the options ask for."""

    observed: Calibration

    def __call__(self, layer: Symbol, asked: Asked) -> QuantizedWeight:
        rounding = find_algorithm(Rounding, asked.options.rounding)
        covering = rounding.covering(layer, self.observed, asked.options)
        return asked.quantized(rounding.of_layer(layer, self.observed), covering)
