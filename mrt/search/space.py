"""What may be chosen: the bits of each weight and each tensor, and the algorithms; a candidate is a configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from mrt.algorithm_registry import names_of
from mrt.calibration import Range
from mrt.quantization.algorithms.algorithm import BiasCorrection, ChannelChoice, ParameterChange, Rounding
from mrt.quantization.algorithms.bias_correction import reductions
from mrt.quantization.cost import multiplications
from mrt.quantization.expand import plan_graph
from mrt.quantization.options import (
    ActivationConfig,
    ActivationOverride,
    Override,
    QuantizationConfig,
    WeightOverride,
)
from mrt.quantization.simulation.rounded_graph import rounded_graph
from mrt.quantization.tensor_plan import Plan
from mrt.symbol import Graph, Symbol

Kind = Literal["weight", "activation"]
Key = tuple[Kind, str]
"""What is chosen: the weight that a symbol takes, or the tensor that it gives."""
Widths = Mapping[Key, int]
WIDTHS: Mapping[Kind, tuple[int, ...]] = {"weight": (2, 3, 4, 5, 6, 8), "activation": (4, 6, 8, 10, 12, 16)}

QUANTIZERS: tuple[str, ...] = get_args(ActivationConfig.model_fields["quantizer"].annotation)


@dataclass(frozen=True)
class Item:
    """Something whose bits may be chosen.

    multiplications: of the layers that read it, for one sample. size: the number of weights, or 0. values: those of a
    tensor, for one sample, or 0.
    """

    kind: Kind
    name: str
    multiplications: int
    size: int = 0
    values: int = 0

    @property
    def key(self) -> Key:
        return self.kind, self.name


@dataclass(frozen=True, eq=False)
class Space:
    """The items of a network, and the configuration that candidates differ from, in which no algorithm chooses bits.

    layers: all with a weight. multiplications: of the network, for one sample. What an override of the configuration
    gives bits, and what the network or its inputs fix, stays as it is and is no item.
    """

    config: QuantizationConfig
    items: tuple[Item, ...]
    layers: tuple[Symbol, ...]
    multiplications: int

    @staticmethod
    def of(graph: Graph, ranges: Mapping[str, Range], config: QuantizationConfig) -> Space:
        """graph: prepared, float. ranges: as calibrated."""
        config = config.model_copy(update={"more_bits": "none"})
        plan = plan_graph(graph, ranges, config).plan
        layers = tuple(symbol for symbol in reductions(plan.graph) if len(symbol.inputs) > 1)
        total = sum(multiplications(symbol) for symbol in plan.graph.operators)
        return Space(config, (*_weights(plan, layers), *_activations(plan)), layers, total)

    @cached_property
    def by_key(self) -> Mapping[Key, Item]:
        return {item.key: item for item in self.items}

    def with_widths(self, config: QuantizationConfig, widths: Widths) -> QuantizationConfig:
        """`config` with these bits, and without any that were given items before."""
        overrides = dict(self.config.overrides)
        for (kind, name), bits in sorted(widths.items()):
            if bits == self.default(kind):
                continue
            chosen = (
                Override(weight=WeightOverride(bits=bits))
                if kind == "weight"
                else Override(activation=ActivationOverride(bits=bits))
            )
            overrides[name] = chosen.over(overrides.pop(name, None))
        return config.model_copy(update={"overrides": overrides, "more_bits": "none"})

    def widths(self, config: QuantizationConfig) -> Widths:
        """The bits of all items."""
        return {item.key: bits_of(config, item.key) for item in self.items}

    def default(self, kind: Kind) -> int:
        """The bits of what no override names."""
        return self.config.weight.bits if kind == "weight" else self.config.activation.bits

    def mean_bits(self, config: QuantizationConfig) -> float:
        """Of all weights, those that are no items among them."""
        sizes = {layer.name: layer.inputs[1].type.size for layer in self.layers}
        total = sum(sizes.values())
        return sum(size * config.weight_of(name).bits for name, size in sizes.items()) / max(total, 1)


def bits_of(config: QuantizationConfig, key: Key) -> int:
    """The bits that a configuration gives an item."""
    kind, name = key
    return config.weight_of(name).bits if kind == "weight" else config.activation_of(name).bits


def algorithms_of(config: QuantizationConfig) -> tuple[str, ...]:
    """The kind of quantizer and the algorithms of a configuration, named as in `alternatives`."""
    return (
        f"activation.quantizer: {config.activation.quantizer}",
        *(f"parameter_changes: {name}" for name in config.parameter_changes),
        f"weight.rounding: {config.weight.rounding}",
        f"bias_correction: {config.bias_correction}",
        f"activation.granularity: {config.activation.granularity}",
    )


def alternatives(config: QuantizationConfig) -> Iterator[tuple[str, QuantizationConfig]]:
    """What differs from a configuration in one of the algorithms, or in the kind of quantizer, with what differs."""
    every = [
        *((f"activation.quantizer: {q}", _changed(config, "activation", quantizer=q)) for q in QUANTIZERS),
        *((f"parameter_changes: {n}", _with_change(config, n)) for n in names_of(ParameterChange.option)),
        *((f"weight.rounding: {n}", _changed(config, "weight", rounding=n)) for n in names_of(Rounding.option)),
        *((f"bias_correction: {n}", _with_correction(config, n)) for n in (*names_of(BiasCorrection.option), "none")),
        *(
            (f"activation.granularity: {n}", _changed(config, "activation", granularity=n))
            for n in (*names_of(ChannelChoice.option), "layer")
        ),
    ]
    own = algorithms_of(config)
    yield from ((name, changed) for name, changed in every if name not in own)


def _with_change(config: QuantizationConfig, name: str) -> QuantizationConfig:
    return config.model_copy(update={"parameter_changes": (*config.parameter_changes, name)})


def _with_correction(config: QuantizationConfig, name: str) -> QuantizationConfig:
    return config.model_copy(update={"bias_correction": name})


def _changed(config: QuantizationConfig, section: str, **options: Any) -> QuantizationConfig:
    return config.model_copy(update={section: getattr(config, section).model_copy(update=options)})


def _weights(plan: Plan, layers: tuple[Symbol, ...]) -> Iterator[Item]:
    config = plan.config
    for layer in layers:
        weight = layer.inputs[1]
        is_free = plan.graph.value(weight) is not None and plan[weight].constant is None and plan[weight].fixed is None
        if is_free and config.weight_of(layer.name).bits == config.weight.bits:
            yield Item("weight", layer.name, multiplications(layer), size=weight.type.size)


def _activations(plan: Plan) -> Iterator[Item]:
    """The tensors whose bits say how others are rounded."""
    readers: dict[str, set[str]] = {}
    for site in rounded_graph(plan, 1, {}).sites:
        if site.edge is not None:
            readers.setdefault(site.decided_by, set()).add(site.edge[0])
    config, by_name = plan.config, plan.graph.by_name
    for name, found in readers.items():
        tensor, symbol = plan.tensors[name], by_name[name]
        if not isinstance(tensor.options, ActivationConfig) or tensor.fixed is not None:
            continue
        if tensor.options.bits == config.activation.bits == config.activation_of(name).bits:
            count = sum(multiplications(by_name[reader]) for reader in sorted(found))
            yield Item("activation", name, count, values=symbol.type.size // max(symbol.shape[0], 1))
