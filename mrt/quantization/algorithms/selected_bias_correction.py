"""Bias correction of those layers where it lowers the error of the outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from mrt.calibration import Calibration, Needs
from mrt.quantization.algorithms.algorithm import BiasCorrection, Samples, algorithm
from mrt.quantization.algorithms.bias_correction import means_read_by_reductions
from mrt.quantization.algorithms.fast_bias_correction import shifts_of
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.simulation.parts import cut
from mrt.quantization.simulation.rounded_graph import measured
from mrt.quantization.simulation.simulation import Trial, planned_weights, simulation_of
from mrt.symbol import Array, Graph, Symbol

BLOCKS = 6
"""Runs of neighbouring layers that are corrected or left together."""
AT_ONCE = 3
"""How many of these runs are tried side by side, as if none before them were left out."""
TRIED_OPERATIONS = 8e10
"""What the trials may take, which bounds the samples on which they are run."""
LEAST_GAIN = 1.01
"""How many times less the error must be for layers to be left uncorrected."""
_Errors = Callable[[Sequence[Mapping[str, Array]]], list[float]]
"""From corrections that are tried to the errors that they leave."""


@algorithm("selected")
class SelectedBiasCorrection(BiasCorrection):
    """The fast correction, of the layers where it helps.

    A correction restores the mean of a layer's output, but an error elsewhere may have made up for it. Runs of layers
    are left uncorrected one after the other, and stay so where the error of the outputs falls on samples held apart.
    """

    reads_samples: ClassVar[bool] = True

    def needs(self, graph: Graph) -> Needs:
        return means_read_by_reductions(graph)

    def values(self, graph: Graph) -> tuple[Symbol, ...]:
        return measured(graph)

    def corrections(
        self, graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples
    ) -> dict[str, Array]:
        simulation = simulation_of(graph, observed, config, samples)
        planned, weights = planned_weights(graph, observed, config, samples)
        every = shifts_of(planned.plan.graph, observed, weights)
        few = simulation.affordable(BLOCKS + 2, TRIED_OPERATIONS)

        def errors(tried: Sequence[Mapping[str, Array]]) -> list[float]:
            return simulation.errors([Trial(corrections=each, plan=planned.plan, samples=few) for each in tried])

        return _selected(every, errors)


def _selected(every: Mapping[str, Array], errors: _Errors) -> dict[str, Array]:
    """What is left of the corrections once runs of layers whose correction does harm are taken out."""
    if not every:
        return {}
    none, whole = errors([{}, every])
    found, least = ({}, none) if none * LEAST_GAIN < whole else (dict(every), whole)
    blocks = cut(list(every), BLOCKS)
    while blocks:
        # Most are left as they are, so that the next ones are tried at once.
        tried = [_toggled(found, every, block) for block in blocks[:AT_ONCE]]
        better = next(((n, each) for n, each in enumerate(errors(tried)) if each * LEAST_GAIN < least), None)
        if better is not None:
            found, least = tried[better[0]], better[1]
        blocks = blocks[AT_ONCE if better is None else better[0] + 1 :]
    return found


def _toggled(found: Mapping[str, Array], every: Mapping[str, Array], block: Sequence[str]) -> dict[str, Array]:
    """`found` with the corrections of a block taken out where they are in, else put in."""
    if any(name in found for name in block):
        return {name: value for name, value in found.items() if name not in block}
    return {name: value for name, value in every.items() if name in found or name in block}
