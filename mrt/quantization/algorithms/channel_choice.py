"""Granularity auto: from calibration alone, which tensors gain by channel groups, within a budget of operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mrt.calibration import Range
from mrt.quantization.algorithms.algorithm import ChannelChoice, algorithm, find_algorithm
from mrt.quantization.cost import added_operations, multiplications
from mrt.quantization.demand import Demand
from mrt.quantization.expansion import expansion_of, group_readers
from mrt.quantization.granularity import channel_ranges_with_margin, gain_db
from mrt.quantization.options import (
    ActivationConfig,
    ActivationOverride,
    ChannelGranularity,
    Override,
    QuantizationConfig,
)
from mrt.quantization.plan.own_quantizers import quantizer_options
from mrt.quantization.plan.ranges import calibrated_ranges
from mrt.quantization.plan.trained import fixed_targets
from mrt.symbol import Graph, Symbol
from mrt.symbol.channels import channel_axes

AUTO = "auto"
"""The granularity that leaves the choice to this algorithm."""
LEAST_GAIN = 3.0
"""Decibels; half a bit, below which a split is not worth its operations."""
NEARLY_ALL = 0.8
"""Coarser groups that keep this share of what single channels gain are taken instead."""


@dataclass(frozen=True)
class _Split:
    """A tensor in groups of `step` channels. gain: in dB. operations: what that adds, per sample."""

    step: int
    gain: float
    operations: int


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A tensor whose quantizer may have channel groups. layers: those that read it, or what holds the same integers
    behind it, such as its maxima."""

    symbol: Symbol
    quantizer: str
    layers: tuple[Symbol, ...]

    def _added(self, channels: int, step: int) -> int:
        groups = [channel // step for channel in range(channels)]
        return sum(added_operations(layer, groups) for layer in self.layers)

    def splits(self, ranges: Mapping[str, Range]) -> list[_Split]:
        """The splits that are worth it, the best first: as coarse as keeps most of the gain, then coarser."""
        channels = channel_ranges_with_margin(ranges[self.symbol.name])
        steps = [1 << power for power in range((len(channels) - 1).bit_length())]
        gains = {step: gain_db(channels, step, self.quantizer) for step in steps}
        wanted = NEARLY_ALL * max(gains.values(), default=0.0)
        return [
            _Split(step, gains[step], self._added(len(channels), step))
            for step in sorted(steps, key=lambda step: (gains[step] < wanted, -step if gains[step] >= wanted else step))
            if gains[step] >= LEAST_GAIN
        ]


def resolve_granularity(
    graph: Graph, ranges: Mapping[str, Range], config: QuantizationConfig
) -> tuple[QuantizationConfig, tuple[str, ...]]:
    """The config with every granularity that names an algorithm decided by it, and what was chosen, why."""
    notes: list[str] = []
    for name in config.channel_choices:
        config, more = find_algorithm(ChannelChoice, name).choose(graph, ranges, config)
        notes += more
    return config, tuple(notes)


@algorithm(AUTO)
class GainChoice(ChannelChoice):
    """Splits where that saves most noise for an operation, within a budget of operations.

    The gain of a split is the quantization noise that it saves if every channel holds what calibration saw. Splits are
    taken by gain per operation while the sum of added operations stays within `max_extra_operations` times the
    network's multiplications. A tensor of whose channels calibration saw nothing stays `auto`.
    """

    def choose(
        self, graph: Graph, ranges: Mapping[str, Range], config: QuantizationConfig
    ) -> tuple[QuantizationConfig, tuple[str, ...]]:
        candidates = _candidates(graph, ranges, config)
        found = {c: c.splits(ranges) for c in candidates if ranges[c.symbol.name].channels}
        total = sum(multiplications(symbol) for symbol in graph.operators)
        room = config.max_extra_operations * total
        notes, overrides = [], dict(config.overrides)
        for candidate in sorted(found, key=lambda candidate: -_worth(found[candidate])):
            symbol, splits = candidate.symbol, found[candidate]
            split = next((split for split in splits if split.operations <= room), None)
            granularity = None if split is None else ChannelGranularity(channel=split.step)
            # What carries the tensor's integers on follows its options.
            override = ActivationOverride(granularity=granularity or "layer")
            overrides[symbol.name] = Override(activation=override).over(overrides.get(symbol.name))
            room -= 0 if split is None else split.operations
            notes += _notes(symbol, split, splits, total)
        return config.model_copy(update={"overrides": overrides}), tuple(notes)


def _notes(symbol: Symbol, taken: _Split | None, splits: list[_Split], total: int) -> list[str]:
    """What was done with a tensor; nothing where no split is worth it."""
    if not splits:
        return []
    split = taken or splits[0]
    cost = f"{split.gain:.1f} dB of noise for {_share(split, total)} more operations"
    if taken is not None:
        return [f"{symbol.name} ({symbol.op}): groups of {split.step} channels save {cost}"]
    return [
        f"{symbol.name} ({symbol.op}): one scale; groups of {split.step} channels would save {cost}, beyond "
        f"max_extra_operations"
    ]


def _candidates(graph: Graph, ranges: Mapping[str, Range], config: QuantizationConfig) -> list[_Candidate]:
    """The tensors that are asked to be `auto`, are read in channel groups, and are rounded where they are made."""
    fixed = fixed_targets(graph, config.inputs)
    asked = quantizer_options(graph, calibrated_ranges(graph, ranges, config, fixed), config, fixed)
    axes = channel_axes(graph)

    def is_auto(symbol: Symbol) -> bool:
        options = asked[symbol.name]
        return isinstance(options, ActivationConfig) and options.granularity == AUTO

    found = []
    for symbol in graph.operators:
        options = asked[symbol.name]
        if not isinstance(options, ActivationConfig) or options.granularity != AUTO or _carries(graph, symbol):
            continue
        read, layers = False, []
        pending = [symbol]
        while pending:
            given = pending.pop()
            for reader in group_readers(graph, given, axes.get(given.name, 0)):
                read = True
                if reader.operator.weight_channel_axis is not None:
                    layers.append(reader)
                elif _carries(graph, reader) and is_auto(reader):
                    pending.append(reader)
        if read:
            found.append(_Candidate(symbol, options.group_quantizer, tuple(layers)))
    return found


def _carries(graph: Graph, symbol: Symbol) -> bool:
    """Whether an operator gives the integers of the channel groups that it reads, so that nothing is rounded anew."""
    return symbol.operator.keeps_scale and Demand.CHANNELS in expansion_of(symbol).demands(symbol, graph)


def _worth(splits: list[_Split]) -> float:
    return splits[0].gain / (1 + splits[0].operations) if splits else 0.0


def _share(split: _Split, total: int) -> str:
    return f"{100 * split.operations / max(total, 1):.2g} %"
