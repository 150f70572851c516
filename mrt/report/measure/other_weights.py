"""What the weights of a few layers would stand for under other options, each layer quantized by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mrt.algorithm_registry import names_of
from mrt.calibration import Calibration
from mrt.errors import MRTError
from mrt.quantization.algorithms.algorithm import Rounding, Samples, find_algorithm
from mrt.quantization.algorithms.bias_correction import reductions
from mrt.quantization.algorithms.moments import with_moments
from mrt.quantization.cost import network_operations
from mrt.quantization.expand import plan_graph, rounded_weights
from mrt.quantization.options import ChannelGranularity, Override, QuantizationConfig, WeightConfig, WeightOverride
from mrt.quantization.simulation.rounded_graph import root_of
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.builder import GraphBuilder

MOMENT_OPERATIONS, MOST_MOMENT_SAMPLES = 4e10, 64
"""What gathering what a rounding reads may take, in multiplications; it bounds the samples."""
WIDER, NARROW = 12, 8
"""Bits that are tried: sums of products of weights with more seldom fit 32 bits."""
PARTS, LEAST_CHANNELS = 4, 8
"""Into how many runs of input channels a weight is cut, and how many it has then at least."""


@dataclass(frozen=True, eq=False)
class OtherWeight:
    """What a weight may be instead. option: in words. weight: what its integers stand for."""

    option: str
    override: WeightOverride
    weight: Array

    def groups(self, layer: Symbol) -> list[int]:
        """The group of each input channel, where the option asks for groups."""
        granularity = self.override.granularity
        if not isinstance(granularity, ChannelGranularity):
            return []
        return [channel // granularity.channel for channel in range(layer.inputs[0].shape[1])]


def weight_options(layer: Symbol, given: WeightConfig) -> list[tuple[str, WeightOverride]]:
    """What may be asked of a layer's weight beside what is given, in words and as an override."""
    found = [(f"{bits} bits", WeightOverride(bits=bits)) for bits in (NARROW, WIDER) if given.bits < bits]
    if given.scales == "layer":
        found.append(("a scale for each output channel", WeightOverride(scales="output_channel")))
    channels = layer.inputs[0].shape[1] if layer.inputs[0].type.rank > 1 else 0
    if given.channel_step is None and channels >= LEAST_CHANNELS and getattr(layer.operator, "num_group", 1) == 1:
        step = -(-channels // PARTS)
        granularity = ChannelGranularity(channel=step)
        found.append((f"scales for each {step} input channels", WeightOverride(granularity=granularity)))
    if given.quantizer == "symmetric":
        found.append(("an affine quantizer", WeightOverride(quantizer="affine")))
    others = (name for name in names_of(Rounding.option) if name != given.rounding)
    return [*found, *((f"rounding by {name}", WeightOverride(rounding=name)) for name in others)]


def weight_of_layer(graph: Graph, layer: Symbol, observed: Calibration, config: QuantizationConfig) -> Array:
    """What the integer weight of a layer of a prepared graph stands for; MRTError where it has none.

    The layer is quantized by itself, on what it reads: the rest of the network has no part in it but by ranges.
    """
    builder, (data, weight) = GraphBuilder(), layer.inputs
    given = builder.parameter(weight.name, graph.parameters[weight.name])
    made = builder.apply(layer.operator, [builder.input(data.name, data.type), given], layer.name)
    return rounded_weights(plan_graph(builder.graph([made]), observed.ranges, config), observed)[layer.name]


def with_layer_moments(
    graph: Graph, layers: Sequence[Symbol], observed: Calibration, config: QuantizationConfig, samples: Samples
) -> tuple[Calibration, int]:
    """With what roundings read of these layers, and from how many samples; as it is where nothing reads it.

    Few samples serve: a choice between options is asked for, and no weight that is kept.
    """
    reading = [name for name in names_of(Rounding.option) if find_algorithm(Rounding, name).reads_moments]
    if not reading or not layers:
        return observed, 0
    count = int(min(max(MOMENT_OPERATIONS / max(network_operations(graph), 1), 1), MOST_MOMENT_SAMPLES))
    limit = samples.config.samples
    count = count if limit is None else min(count, limit)
    few = replace(
        samples,
        config=samples.config.model_copy(update={"samples": count}),
        progress=None,
        simulations={},
        weights=None,
        network=None,
    )
    rounded = WeightOverride(rounding=reading[0])
    asked = QuantizationConfig(
        activation=config.activation,
        weight=config.weight.model_copy(update={"rounding": "nearest"}),
        inputs=config.inputs,
        overrides={layer.name: Override(weight=rounded) for layer in layers},
    )
    return with_moments(graph, observed, asked, few), count


def other_weights(
    graph: Graph, layers: Sequence[Symbol], observed: Calibration, config: QuantizationConfig, moments: int
) -> tuple[dict[str, list[OtherWeight]], list[str]]:
    """By the layer's name what its weight may be, and why some options are none.

    moments: from how many samples what roundings read was gathered.
    """
    found: dict[str, list[OtherWeight]] = {layer.name: [] for layer in layers}
    refused: list[str] = []
    for layer in layers:
        for words, override in weight_options(layer, config.weight_of(layer.name)):
            name = override.rounding or config.weight_of(layer.name).rounding
            if find_algorithm(Rounding, name).reads_moments and not moments:
                refused.append(f"{layer.name}, weights, {words}: nothing was gathered that {name} reads")
                continue
            alone = QuantizationConfig(
                preset="mrt",
                activation=config.activation_of(root_of(layer.inputs[0]).name),
                weight=config.weight_of(layer.name).changed_by(override),
                inputs={data: each for data, each in config.inputs.items() if data == layer.inputs[0].name},
            )
            try:
                weight = weight_of_layer(graph, layer, observed, alone)
            except MRTError as error:
                refused.append(f"{layer.name}, weights, {words}: {' '.join(str(error).split())}")
            else:
                found[layer.name].append(OtherWeight(words, override, weight))
    return found, refused


def weighted_layers(graph: Graph, names: Sequence[str]) -> list[Symbol]:
    """Those of `names` that are reductions of a float parameter by two operands."""
    by_name = {layer.name: layer for layer in reductions(graph) if len(layer.inputs) == 2}
    return [
        by_name[name]
        for name in names
        if name in by_name
        and graph.value(by_name[name].inputs[1]) is not None
        and by_name[name].inputs[1].type.is_float
    ]
