"""Presets: what options mean that nobody sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mrt.quantization.cost import network_operations
from mrt.quantization.integer_inputs import integer_inputs
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.plan.trained import brings_quantization
from mrt.symbol import Graph
from mrt.symbol.operators.functions import Rsqrt, Sqrt

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "best": {
        "activation.quantizer": "auto",
        "weight.rounding": "gptq",
        "parameter_changes": ("smooth",),
        "more_bits": "auto",
        "bias_correction": "selected",
        "output.room": 4.0,
    },
    "fast": {"activation.quantizer": "auto", "bias_correction": "fast", "output.room": 4.0},
    "mrt": {},
}
"""By name: the options that it sets where the configuration does not; the others have their own defaults."""
MOST_OPERATIONS, FEW_BITS = 1e9, 6
"""Of a network whose weights, of so many bits and more, are worth the time that rounding them by data takes."""


def with_preset(config: QuantizationConfig, graph: Graph, has_data: bool) -> QuantizationConfig:
    """The options with those that the preset sets.

    A network that brings quantizers keeps to them, and without data nothing can be measured: there the preset is mrt.
    Where the bits of activations are set, no tensor gets more. Weights of a large network are rounded to the nearest.
    Inputs of integers that are not declared are what follows from the graph, as it was read.
    """
    chosen = PRESETS[config.preset if has_data and not brings_quantization(graph) else "mrt"]
    update: dict[str, Any] = {"preset": "mrt"}
    update |= {name: getattr(config, name) for name in ("activation", "weight", "output")}
    for key, value in chosen.items():
        if key == "weight.rounding" and config.weight.bits >= FEW_BITS and network_operations(graph) > MOST_OPERATIONS:
            continue
        if key == "parameter_changes" and not normalizes(graph):
            continue
        if key == "output.room" and "bits" in config.output.model_fields_set:
            continue
        section, _, name = key.rpartition(".")
        if section and name not in update[section].model_fields_set:
            update[section] = update[section].model_copy(update={name: value})
        elif not section and not _is_set(config, name):
            update[name] = value
    inputs = integer_inputs(graph, config.inputs)
    return config.model_copy(update=update | ({"inputs": {**config.inputs, **inputs}} if inputs else {}))


def normalizes(graph: Graph) -> bool:
    """Whether a graph, as it was read, may hold a normalization with factors: one, or a root, of which one is spelled.

    What others make of changed parameters depends on all options, so that a calibration that is kept would be lost.
    """
    return any(s.operator.affine_axis is not None or isinstance(s.operator, (Rsqrt, Sqrt)) for s in graph.operators)


def _is_set(config: QuantizationConfig, name: str) -> bool:
    if name == "more_bits" and "bits" in config.activation.model_fields_set:
        return True
    return name in config.model_fields_set
