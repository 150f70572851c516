"""Equalisation across layers: channels of a tensor are brought to like ranges, the weights that read it undo it."""

from __future__ import annotations

import numpy as np

from mrt.calibration import Calibration
from mrt.quantization.algorithms.algorithm import Changed, Needs, ParameterChange, Samples, algorithm
from mrt.quantization.equalization.choice import LEAST_FACTOR, Group, scale_channels, squares_needed
from mrt.quantization.equalization.expected_error import Quantizers
from mrt.quantization.equalization.factor_sets import layer_axis
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, Graph

STRENGTHS = (0.25, 0.5, 0.75, 1.0)


@algorithm("equalize")
class Equalize(ParameterChange):
    """Divides channel c of what layers make by f_c = max((r_c / r)^s, 1/64), and multiplies the weights that read it.

    r_c / r is the share of a tensor's range that its channel takes, of several tensors that have the channel in common
    the largest. The strength s is that of least expected error (`expected_errors`), 0 included. Source: M. Nagel et
    al., "Data-Free Quantization Through Weight Equalization and Bias Correction", 2019, section 4.1, with ranges of
    activations instead of those of weights and the strength of each tensor. A channel that was only ever zero keeps its
    scale. Factors are no powers of two: these would lose half a bit in a channel, while rounding a weight once more in
    float32 loses one part in 2^24.
    """

    def needs(self, graph: Graph) -> Needs:
        return squares_needed(graph, layer_axis)

    def change(self, graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples) -> Changed:
        return scale_channels("equalize", graph, observed, config, samples, layer_axis, _strengths)


def _strengths(group: Group, quantizers: Quantizers) -> dict[str, Array]:
    shares = group.spread(quantizers)
    seen = np.where(shares > 0, shares, 1.0)
    return {f"strength {strength:g}": np.maximum(seen**strength, LEAST_FACTOR) for strength in STRENGTHS}
