"""The integer weights of layers, found by name in the integer graph, and the real values that they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mrt.model import QuantizedModel
from mrt.report.facts import Weights
from mrt.report.layers import FloatLayer, weight_of
from mrt.report.measure.numbers import decibels, rounded
from mrt.report.measure.values import CHANNELS, histogram
from mrt.symbol import Array, Graph

LEVELS, COARSE = 64, 16
"""Bins of the integers of a weight, and of one channel's weights."""
CLOSE = 0.1
"""The error, as a share of the energy, beyond which integers are not those of a float weight."""


@dataclass(frozen=True, eq=False)
class LayerWeight:
    """The float weight of a layer, its integers of the same shape, and a scale for each place of `axis`."""

    given: Array
    integers: Array
    scales: Array
    axis: int

    @property
    def real(self) -> Array:
        """What the integers stand for, float64."""
        shape = tuple(-1 if axis == self.axis else 1 for axis in range(self.given.ndim))
        real: Array = self.integers * self.scales.reshape(shape)
        return real

    @property
    def facts(self) -> Weights:
        by_channel, integers = (np.moveaxis(x, self.axis, 0) for x in (self.given, self.integers))
        flat = by_channel.reshape(len(by_channel), -1).astype(np.float64)
        chosen = np.unique(np.linspace(0, len(flat) - 1, min(len(flat), CHANNELS)).astype(np.int64))
        largest = np.abs(flat[chosen]).max(1, initial=0.0)
        lo, hi = float(integers.min()), float(integers.max())
        error = np.square(self.given - self.real).sum()
        return Weights(
            shape=list(self.given.shape),
            sqnr=decibels(float(np.square(flat).sum()), float(error)),
            zeros=rounded(float((self.integers == 0).mean())),
            levels=histogram(self.integers, lo - 0.5, hi + 0.5, int(min(LEVELS, hi - lo + 1))),
            channel_count=len(flat),
            channels=[int(place) for place in chosen],
            scales=[rounded(scale, 3) for scale in self.scales[chosen]],
            largest=[rounded(reach, 3) for reach in largest],
            histograms=[
                histogram(row, -reach, reach, COARSE).counts for row, reach in zip(flat[chosen], largest, strict=True)
            ],
        )


def layer_weights(layers: Sequence[FloatLayer], graph: Graph, model: QuantizedModel) -> dict[str, LayerWeight]:
    """By the name of the head; of layers whose integers have other shapes, such as parts of a weight, there is none."""
    by_origin: dict[str, list[Array]] = {}
    for symbol in model.graph.symbols:
        value = model.graph.value(symbol)
        if value is not None:
            by_origin.setdefault(symbol.origin, []).append(value)
    found = {}
    for layer in layers:
        weight = _found(layer, graph, model, by_origin)
        if weight is not None:
            found[layer.head.name] = weight
    return found


def _found(
    layer: FloatLayer, graph: Graph, model: QuantizedModel, by_origin: Mapping[str, Sequence[Array]]
) -> LayerWeight | None:
    symbol = weight_of(layer, graph)
    axis = None if layer.head.is_variable else layer.head.operator.weight_channel_axis
    if symbol is None or axis is None or not symbol.type.is_float:
        return None
    given = graph.parameters[symbol.name]
    named = model.graph.parameters.get(symbol.name)
    candidates = [*([] if named is None else [named]), *by_origin.get(layer.head.name, ())]
    integers = next((value for value in candidates if value.shape == given.shape), None)
    return None if integers is None else _fitted(given.astype(np.float64), integers.astype(np.float64), axis)


def _fitted(given: Array, integers: Array, axis: int) -> LayerWeight | None:
    """Scales by least squares: those of the quantizer differ from them by less than rounding does."""
    others = tuple(k for k in range(given.ndim) if k != axis)
    energy = np.square(integers).sum(axis=others)
    scales = (given * integers).sum(axis=others) / np.where(energy > 0, energy, 1.0)
    found = LayerWeight(given, integers, scales, axis)
    error, signal = np.square(given - found.real).sum(), np.square(given).sum()
    return found if error <= CLOSE * signal else None
