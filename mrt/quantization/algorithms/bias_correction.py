"""Bias correction: quantization moves the mean of a reduction's output channels; a constant in the bias moves it back.

The mean is taken at the accumulator, behind the sums of products and before bias and activation: there the real output
of the reduction is, and a constant costs nothing, since it joins the bias.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mrt.calibration import Calibration, CalibrationConfig, Channels, Needs
from mrt.errors import ConfigError, QuantizationError
from mrt.quantization.algorithms.algorithm import BiasCorrection, Samples, find_algorithm
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, Graph, NumpyRunner, Symbol


def reductions(graph: Graph) -> tuple[Symbol, ...]:
    """The operators with a weight, in order: those whose output is corrected."""
    return tuple(symbol for symbol in graph.operators if symbol.channel_axis is not None)


def means_around_reductions(graph: Graph) -> Needs:
    """The means of what every reduction reads, and of what it gives."""
    pairs = ((read_by(symbol), given_by(symbol)) for symbol in reductions(graph))
    return Needs(means=tuple(dict.fromkeys(channels for pair in pairs for channels in pair)))


def means_read_by_reductions(graph: Graph) -> Needs:
    """The means of what every reduction reads."""
    return Needs(means=tuple(dict.fromkeys(read_by(symbol) for symbol in reductions(graph))))


def find_corrections(
    graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples | None = None
) -> Mapping[str, Array]:
    """What `expand_graph` shall add to the output of each reduction, as `config.bias_correction` says.

    graph: prepared, float. observed: the ranges of all `observed_tensors`, and what the algorithm needs. samples:
    needed where it reads them. Float64 (O,) by the name of the reduction; none where there is no algorithm.
    Raises ConfigError where the samples are missing, QuantizationError naming a reduction whose means are.
    """
    if not config.corrects_biases:
        return {}
    chosen = find_algorithm(BiasCorrection, config.bias_correction)
    if chosen.reads_samples and samples is None:
        raise ConfigError(
            f"quantize.bias_correction is {config.bias_correction}: calibration data is needed to run the integers on"
        )
    return chosen.corrections(graph, observed, config, samples or Samples((), CalibrationConfig(), NumpyRunner()))


def read_by(reduction: Symbol) -> Channels:
    """The channels of what a reduction reads."""
    return _channels(reduction.inputs[0], reduction)


def given_by(reduction: Symbol) -> Channels:
    """Its output channels."""
    return _channels(reduction, reduction)


def _channels(tensor: Symbol, reduction: Symbol) -> Channels:
    """The channels of the data or of the output of a reduction; each element of what it reads flat is one."""
    axis = reduction.operator.channel_axis()
    if axis is None:
        raise QuantizationError(f"{reduction.name} ({reduction.op}) has no weight, and so no channels to correct")
    is_flat = tensor.type.rank > reduction.type.rank
    return Channels(tensor.name, axis % reduction.type.rank if is_flat else axis % tensor.type.rank, is_flat)


def mean_of(reduction: Symbol, channels: Channels, observed: Calibration) -> Array:
    """The mean of each of a reduction's channels, float64; QuantizationError where it was not observed."""
    if channels not in observed.means:
        raise QuantizationError(
            f"{reduction.name} ({reduction.op}): the mean of {channels.tensor} along axis {channels.axis} is missing; "
            f"calibrate with it first"
        )
    return np.asarray(observed.means[channels], np.float64)
