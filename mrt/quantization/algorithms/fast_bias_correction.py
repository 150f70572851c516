"""Bias correction from the calibrated means alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mrt.calibration import Calibration
from mrt.collector import give_back_freed
from mrt.execution import THREADS, Executor
from mrt.quantization.algorithms.algorithm import BiasCorrection, Needs, Samples, algorithm
from mrt.quantization.algorithms.bias_correction import mean_of, means_read_by_reductions, read_by
from mrt.quantization.expand import plan_graph, rounded_weights
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, Graph, Symbol


@algorithm("fast")
class FastBiasCorrection(BiasCorrection):
    """What the rounding of the weights does to the means."""

    def needs(self, graph: Graph) -> Needs:
        return means_read_by_reductions(graph)

    def corrections(
        self, graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples
    ) -> dict[str, Array]:
        return fast_corrections(graph, observed, config, samples.executor)


def fast_corrections(
    graph: Graph, observed: Calibration, config: QuantizationConfig, executor: Executor = THREADS
) -> dict[str, Array]:
    """The shift that the rounding of the weights makes, from the calibrated mean of each input channel.

    E[Y] - E[Y'] = (W - W') E[x] for Y = W x and Y' = W' x, W' being what the integer weight stands for. Source:
    M. Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", 2019, section 4.2, with
    the measured mean of x. Every position of a channel is taken to have the channel's mean, the border too; the errors
    of x itself, its saturation among them, do not show.
    """
    planned = plan_graph(graph, observed.ranges, config)
    return shifts_of(planned.plan.graph, observed, rounded_weights(planned, observed, executor))


def shifts_of(graph: Graph, observed: Calibration, weights: Mapping[str, Array]) -> dict[str, Array]:
    """The shifts that these weights make. weights: what the integers stand for, by the name of a reduction."""
    corrections: dict[str, Array] = {}
    for name, rounded in weights.items():
        symbol = graph.by_name[name]
        error = np.subtract(graph.parameters[symbol.inputs[1].name], rounded, dtype=np.float64)
        shift = symbol.operator.evaluate(_mean_sample(symbol, observed), error)
        corrections[name] = shift.mean(axis=tuple(axis for axis in range(shift.ndim) if axis != symbol.channel_axis))
    give_back_freed()
    return corrections


def _mean_sample(reduction: Symbol, observed: Calibration) -> Array:
    """One sample of what a reduction reads, (1, ...), each channel at its calibrated mean everywhere."""
    channels, data = read_by(reduction), reduction.inputs[0]
    mean, seen = mean_of(reduction, channels, observed), channels.seen((1, *data.shape[1:]))
    shape = tuple(-1 if axis == channels.axis else 1 for axis in range(len(seen)))
    return np.broadcast_to(mean.reshape(shape), seen).reshape(1, *data.shape[1:])
