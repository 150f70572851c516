"""Smoothing: wide channels behind normalisations become narrower, and the weights that read them larger."""

from __future__ import annotations

import numpy as np

from mrt.calibration import Calibration
from mrt.quantization.algorithms.algorithm import Changed, Needs, ParameterChange, Samples, algorithm
from mrt.quantization.equalization.choice import Group, bounded, scale_channels, squares_needed
from mrt.quantization.equalization.expected_error import Quantizers
from mrt.quantization.equalization.factor_sets import normalization_axis
from mrt.quantization.equalization.layers import rows_of
from mrt.quantization.equalization.own_factors import WithOwnFactors
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, Graph

MIGRATED = (0.25, 0.5, 0.75)


@algorithm("smooth")
class Smooth(ParameterChange):
    """Divides channel j behind a normalisation by s_j = max |X_j|^a / max |W_j|^(1 - a), and multiplies W_j by it.

    The factors go into the normalisation's gamma and beta, or into a constant that multiplies and what is added behind;
    where something else reads the normalised tensor too, into a multiplication in front of the layers, which costs
    nothing. The share a is that of least expected error (`expected_errors`), or the tensor is left. Source: G. Xiao et
    al., "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language Models", 2022, equation 4.
    """

    def needs(self, graph: Graph) -> Needs:
        apart = WithOwnFactors.of(graph, normalization_axis)
        return apart.needs(squares_needed(apart.graph, normalization_axis))

    def change(self, graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples) -> Changed:
        apart = WithOwnFactors.of(graph, normalization_axis)
        known = apart.observed(observed)
        changed = scale_channels("smooth", apart.graph, known, config, samples, normalization_axis, _shares)
        return apart.without_idle(changed)


def _shares(group: Group, quantizers: Quantizers) -> dict[str, Array]:
    data, weights = np.zeros(group.count), np.zeros(group.count)
    for tensor, (lo, hi) in group.ends.items():
        np.maximum.at(data, group.places[tensor], np.maximum(-lo, hi))
    for reader in group.readers:
        rows = rows_of(reader.layer, quantizers.graph.parameters[reader.layer.inputs[1].name])
        largest = np.maximum(rows.max(axis=2), -rows.min(axis=2)).reshape(len(rows), -1)
        places = reader.columns(group.places[reader.data])
        np.maximum.at(weights, places, _by_column(largest, len(places)))
    seen = (data > 0) & (weights > 0)
    x, w = np.where(seen, data, 1.0), np.where(seen, weights, 1.0)
    found = {}
    for share in MIGRATED:
        factors = np.where(seen, x**share / w ** (1 - share), 0.0)
        found[f"a share of {share:g}"] = np.where(seen, bounded(factors), 1.0)
    return found


def _by_column(largest: Array, columns: int) -> Array:
    """The largest |weight| of each column, (columns,), of (O, I), whose rows are of columns / I groups."""
    groups = columns // largest.shape[1]
    by_column: Array = largest.reshape(groups, -1, largest.shape[1]).max(axis=1).reshape(-1)
    return by_column
