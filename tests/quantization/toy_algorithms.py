"""An algorithm of each kind, as a package of `mrt.plugins` brings them: one file, no other change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from mrt.calibration import Calibration, CalibrationConfig, Range
from mrt.calibration.observers import RangeObserver, Ranging
from mrt.quantization.algorithms.algorithm import (
    BiasCorrection,
    Changed,
    ChannelChoice,
    Needs,
    ParameterChange,
    RangeMethod,
    Rounded,
    Rounding,
    Samples,
    UnroundedWeight,
    algorithm,
)
from mrt.quantization.algorithms.bias_correction import means_around_reductions, read_by, reductions
from mrt.quantization.options import ActivationOverride, ChannelGranularity, Override, QuantizationConfig
from mrt.symbol import Array, Graph, Symbol


@dataclass(frozen=True)
class HalfObserver:
    """The range observed, of which half is covered."""

    seen: RangeObserver = field(default_factory=RangeObserver)

    @property
    def lo(self) -> float:
        return self.seen.lo

    @property
    def hi(self) -> float:
        return self.seen.hi

    @property
    def covered(self) -> tuple[float, float]:
        return self.lo / 2, self.hi / 2

    def observe(self, samples: Array) -> HalfObserver:
        return HalfObserver(self.seen.observe(samples))

    def merge(self, other: HalfObserver) -> HalfObserver:
        return HalfObserver(self.seen.merge(other.seen))


@algorithm("half")
class HalfRange(RangeMethod):
    def observer(self, config: CalibrationConfig) -> Ranging:
        return HalfObserver()


@algorithm("floor")
class FloorRounding(Rounding):
    def of_layer(self, layer: Symbol, observed: Calibration) -> Rounded:
        return floored


def floored(weight: UnroundedWeight) -> Array:
    integers = np.floor(weight.values / weight.steps) + weight.zero_points
    return np.clip(integers, weight.lo, weight.hi).astype(np.int64)


@algorithm("outwards")
class OutwardRounding(Rounding):
    """Up where the mean of what a weight is multiplied by is positive, down where it is negative."""

    costly = True

    def needs(self, graph: Graph) -> Needs:
        return Needs(means=tuple(read_by(symbol) for symbol in reductions(graph)))

    def of_layer(self, layer: Symbol, observed: Calibration) -> Rounded:
        means = np.array(observed.means[read_by(layer)])

        def rounded(weight: UnroundedWeight) -> Array:
            exact = weight.values / weight.steps
            integers = np.where(means > 0, np.ceil(exact), np.floor(exact)) + weight.zero_points
            return np.clip(integers, weight.lo, weight.hi).astype(np.int64)

        return rounded


@algorithm("quarter")
class QuarterCorrection(BiasCorrection):
    def needs(self, graph: Graph) -> Needs:
        return means_around_reductions(graph)

    def corrections(
        self, graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples
    ) -> Mapping[str, Array]:
        assert set(observed.means) >= set(self.needs(graph).means)
        return {symbol.name: np.full(symbol.shape[symbol.channel_axis or 0], 0.25) for symbol in reductions(graph)}


@algorithm("counted")
class CountedCorrection(BiasCorrection):
    """As many as there are samples."""

    reads_samples = True

    def corrections(
        self, graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples
    ) -> Mapping[str, Array]:
        count = sum(len(next(iter(batch.values()))) for batch in samples.batches if not isinstance(batch, np.ndarray))
        return {symbol.name: np.full(symbol.shape[symbol.channel_axis or 0], count) for symbol in reductions(graph)}


@algorithm("doubled")
class DoubledChange(ParameterChange):
    """The first reduction's weight times 2, the second's over 2: behind a relu that is the same network."""

    def change(self, graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples) -> Changed:
        first, second = (symbol.inputs[1].name for symbol in reductions(graph))
        weights = {first: graph.parameters[first] * np.float32(2), second: graph.parameters[second] / np.float32(2)}
        return Changed.by_parameters(graph, weights, (f"doubled {first}",))


@algorithm("cut")
class CutChange(ParameterChange):
    """Without its last layer."""

    def change(self, graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples) -> Changed:
        return Changed(graph.with_outputs(graph.outputs[0].inputs[:1]))


@algorithm("lost")
class LostChange(ParameterChange):
    """Of a parameter that is not there."""

    def change(self, graph: Graph, observed: Calibration, config: QuantizationConfig, samples: Samples) -> Changed:
        return Changed.by_parameters(graph, {"w9": np.zeros(3, np.float32)})


@algorithm("pairs")
class PairChoice(ChannelChoice):
    def choose(
        self, graph: Graph, ranges: Mapping[str, Range], config: QuantizationConfig
    ) -> tuple[QuantizationConfig, tuple[str, ...]]:
        pairs = Override(activation=ActivationOverride(granularity=ChannelGranularity(channel=2)))
        split = {name: pairs for name, found in ranges.items() if found.channels}
        return config.model_copy(update={"overrides": split}), tuple(f"{name}: pairs of channels" for name in split)
