"""What calibration observes for the plan and for the algorithms that the options name."""

from __future__ import annotations

from mrt.algorithm_registry import algorithms_of
from mrt.calibration import Needs
from mrt.quantization.algorithms.algorithm import (
    Algorithm,
    BiasCorrection,
    ChannelChoice,
    ParameterChange,
    Rounding,
    WidthChoice,
    find_algorithm,
)
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.plan.make import observed_tensors
from mrt.symbol import Graph, Symbol


def needs_of(graph: Graph, config: QuantizationConfig, also_later: bool = False) -> Needs:
    """The ranges that the plan of a prepared graph needs, and what the chosen algorithms need.

    also_later: and what all others do that are not costly, so that they may be chosen once this was observed.
    """
    needs = Needs(observed_tensors(graph))
    for each in dict.fromkeys((*chosen_algorithms(config), *(_cheap_algorithms() if also_later else ()))):
        needs |= each.needs(graph)
    return needs


def values_of(graph: Graph, config: QuantizationConfig) -> tuple[Symbol, ...]:
    """The tensors of a prepared graph whose values the chosen algorithms will read, each once."""
    return tuple(dict.fromkeys(tensor for each in chosen_algorithms(config) for tensor in each.values(graph)))


def costly_choices(config: QuantizationConfig) -> tuple[str, ...]:
    """The chosen algorithms whose needs are observed only where they are chosen, as OPTION: NAME."""
    return tuple(f"{each.option}: {name}" for each, name in _chosen(config).items() if each.costly)


def chosen_algorithms(config: QuantizationConfig) -> tuple[Algorithm, ...]:
    """Those that `quantize` names."""
    return tuple(_chosen(config))


_Kind = ParameterChange | ChannelChoice | WidthChoice | Rounding | BiasCorrection


def _chosen(config: QuantizationConfig) -> dict[_Kind, str]:
    found: dict[_Kind, str] = {find_algorithm(ParameterChange, name): name for name in config.parameter_changes}
    found |= {find_algorithm(ChannelChoice, name): name for name in config.channel_choices}
    found |= {find_algorithm(Rounding, name): name for name in config.roundings}
    if config.more_bits != "none":
        found[find_algorithm(WidthChoice, config.more_bits)] = config.more_bits
    if config.corrects_biases:
        found[find_algorithm(BiasCorrection, config.bias_correction)] = config.bias_correction
    return found


def _cheap_algorithms() -> tuple[Algorithm, ...]:
    every = (
        *algorithms_of(ChannelChoice),
        *algorithms_of(WidthChoice),
        *algorithms_of(Rounding),
        *algorithms_of(BiasCorrection),
    )
    return tuple(each for each in every if not each.costly)
