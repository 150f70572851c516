"""Who rounds the weights of an expansion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

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

    def is_same(self, other: Asked) -> bool:
        """Whether the weight of one layer is quantized alike for both."""
        one, two = self.weight, other.weight
        is_one_weight = (one.ctypes.data, one.shape, one.strides) == (two.ctypes.data, two.shape, two.strides)
        asks_alike = (self.options, self.ends) == (other.options, other.ends)
        return is_one_weight and asks_alike and self.accumulator.is_same(other.accumulator)


Rounder = Callable[[Symbol, Asked], QuantizedWeight]
"""Quantizes the weight of a reduction, a symbol of the prepared float graph."""


@dataclass(frozen=True, eq=False)
class AsAsked:
    """Rounds as the options ask for.

    known: by layer what was asked last, and the answer, for when just that is asked again.
    """

    observed: Calibration
    known: dict[str, tuple[Asked, QuantizedWeight]] = field(default_factory=dict)

    def __call__(self, layer: Symbol, asked: Asked) -> QuantizedWeight:
        known = self.known.get(layer.name)
        if known is None or not known[0].is_same(asked):
            rounding = find_algorithm(Rounding, asked.options.rounding)
            covering = rounding.covering(layer, self.observed, asked.options)
            known = asked, asked.quantized(rounding.of_layer(layer, self.observed), covering)
            self.known[layer.name] = known
        return known[1]
