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
    """The float weight of a layer, its integers of the same shape, and their steps, which broadcast to that: one for
    each place of `axis`, or for each and every slice that the layer's sum is cut into."""

    given: Array
    integers: Array
    steps: Array
    axis: int

    @property
    def real(self) -> Array:
        """What the integers stand for, float64."""
        real: Array = self.integers * self.steps
        return real

    @property
    def scales(self) -> Array:
        """Of each place of the axis, the coarsest."""
        coarsest: Array = self.steps.max(axis=tuple(k for k in range(self.steps.ndim) if k != self.axis))
        return coarsest

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
    """By the name of the head; of layers whose integers are neither of the weight's shape nor slices of it, none."""
    by_origin: dict[str, list[Array]] = {}
    for symbol in model.graph.symbols:
        value = model.graph.value(symbol)
        if value is not None:
            by_origin.setdefault(symbol.origin, []).append(value)
    slices: dict[str, list[Array]] = {}
    for symbol in model.graph.operators:
        value = None if symbol.operator.weight_channel_axis is None else model.graph.value(symbol.inputs[1])
        if value is not None:
            slices.setdefault(symbol.origin, []).append(value)
    found = {}
    for layer in layers:
        weight = _found(layer, graph, model, by_origin, slices)
        if weight is not None:
            found[layer.head.name] = weight
    return found


def _found(
    layer: FloatLayer,
    graph: Graph,
    model: QuantizedModel,
    by_origin: Mapping[str, Sequence[Array]],
    slices: Mapping[str, Sequence[Array]],
) -> LayerWeight | None:
    symbol = weight_of(layer, graph)
    axis = None if layer.head.is_variable else layer.head.operator.weight_channel_axis
    if symbol is None or axis is None or not symbol.type.is_float:
        return None
    given = graph.parameters[symbol.name]
    named = model.graph.parameters.get(symbol.name)
    candidates = [*([] if named is None else [named]), *by_origin.get(layer.head.name, ())]
    whole = next((value for value in candidates if value.shape == given.shape), None)
    pieces = _slices(given, slices.get(layer.head.name, ()), axis) if whole is None else [(_ALL, whole)]
    return None if pieces is None else _fitted(given.astype(np.float64), pieces, axis)


_ALL: tuple[slice, ...] = ()
"""The place of a weight that is whole."""
Piece = tuple[tuple[slice, ...], Array]
"""Where integers stand in a weight, and these."""


def _slices(given: Array, parts: Sequence[Array], axis: int) -> list[Piece] | None:
    """The slices that a weight is cut into, in order: along another axis than that of the output channels, and where
    its layer has groups of its own along that too. None where `parts` do not make it up."""
    parts = [part for part in parts if part.ndim == given.ndim]
    others = [k for k in range(given.ndim) if k != axis]
    across = next((k for part in parts for k in others if part.shape[k] != given.shape[k]), None)
    if across is None:
        return None
    found: list[Piece] = []
    row = column = 0
    for part in parts:
        place = [slice(0, length) for length in given.shape]
        place[axis] = slice(row, row + part.shape[axis])
        place[across] = slice(column, column + part.shape[across])
        if given[tuple(place)].shape != part.shape:
            return None
        found.append((tuple(place), part))
        column += part.shape[across]
        if column == given.shape[across]:
            row, column = row + part.shape[axis], 0
    return found if (row, column) == (given.shape[axis], 0) else None


def _fitted(given: Array, pieces: Sequence[Piece], axis: int) -> LayerWeight | None:
    """Scales by least squares: those of the quantizer differ from them by less than rounding does."""
    others = tuple(k for k in range(given.ndim) if k != axis)
    integers, steps = np.zeros_like(given), np.zeros_like(given)
    for place, part in pieces:
        values = part.astype(np.float64)
        integers[place] = values
        energy = np.square(values).sum(axis=others, keepdims=True)
        found = (given[place] * values).sum(axis=others, keepdims=True) / np.where(energy > 0, energy, 1.0)
        if len(pieces) == 1:
            steps = found
        else:
            steps[place] = found
    made = LayerWeight(given, integers, steps, axis)
    error, signal = np.square(given - made.real).sum(), np.square(given).sum()
    return made if error <= CLOSE * signal else None
