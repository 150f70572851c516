"""Which tensors are split into channel groups, and which keep one scale although the options split them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mrt.quantization.demand import Demand
from mrt.quantization.expansion import expansion_of, group_readers, named
from mrt.quantization.granularity import channel_ranges_with_margin
from mrt.quantization.options import ActivationConfig, ChannelGranularity
from mrt.quantization.plan.channel_split import ChannelSplit
from mrt.quantization.plan.facts import FactPass, Facts
from mrt.symbol import Graph, Symbol
from mrt.symbol.channels import channel_axes


def channel_splits(facts: Facts) -> dict[str, ChannelSplit]:
    """The tensors, by name, that the options split and that some reader takes in channel groups; those whose parts do.

    Inputs keep one scale: they come from outside as integers of one scale. So do tensors of whose channels calibration
    saw nothing.
    """
    found = dict(facts.part_splits)
    axes = channel_axes(facts.graph)
    for symbol in facts.graph.operators:
        options, axis = facts.options[symbol.name], axes.get(symbol.name, 0)
        step = options.channel_step if isinstance(options, ActivationConfig) else None
        if not isinstance(options, ActivationConfig) or step is None or not group_readers(facts.graph, symbol, axis):
            continue
        calibrated = facts.calibrated[symbol.name]
        if calibrated.channels:
            channels = channel_ranges_with_margin(calibrated)
            found[symbol.name] = ChannelSplit(channels, axis, step, options, facts.never_negative[symbol.name])
    return found


def unsplit_notes(facts: Facts) -> tuple[str, ...]:
    """A note for every reason for which tensors that have channel granularity are read with one scale.

    1. Calibration saw nothing of the channels: they are those of several samples, which the graph has baked in.
    2. An operator needs its input at one scale. One that leaves the scale of its input open (a sum, a relu) or brings
       it to its own (a clip) is none of these: it loses nothing by it.
    """
    unseen: list[str] = []
    readers: dict[tuple[str, str], list[str]] = {}
    for symbol, axis in _split_by_options(facts):
        taking = group_readers(facts.graph, symbol, axis)
        if taking and not facts.calibrated[symbol.name].channels:
            unseen.append(symbol.name)
        elif _granularity(facts, symbol) != "auto":
            for consumer in _reading_at_one_scale(facts.graph, symbol, taking):
                readers.setdefault((consumer.op, expansion_of(consumer).why_one_scale), []).append(symbol.name)
    notes = [f"one scale for what {op} reads, which {mixes}: {named(names)}" for (op, mixes), names in readers.items()]
    if unseen:
        notes.append(f"one scale where calibration saw no channels, since axis 0 counts no samples: {named(unseen)}")
    return tuple(notes)


CHANNEL_SPLITS = FactPass("splits", channel_splits, ("options", "never_negative", "part_splits"), unsplit_notes)


def _split_by_options(facts: Facts) -> Iterator[tuple[Symbol, int]]:
    """The tensors that would have several groups of channels, and the axis of these.

    Those that are still `auto` are such for which nothing could be decided.
    """
    axes = channel_axes(facts.graph)
    for symbol in facts.graph.operators:
        granularity, axis = _granularity(facts, symbol), axes.get(symbol.name, 0)
        step = granularity.channel if isinstance(granularity, ChannelGranularity) else 1
        if granularity != "layer" and axis > 0 and symbol.shape[axis] > step:
            yield symbol, axis


def _granularity(facts: Facts, symbol: Symbol) -> ChannelGranularity | str:
    options = facts.options[symbol.name]
    return options.granularity if isinstance(options, ActivationConfig) else "layer"


def _reading_at_one_scale(graph: Graph, symbol: Symbol, taking: Sequence[Symbol]) -> Iterator[Symbol]:
    """The readers that need one scale: none of those taking groups."""
    for consumer in dict.fromkeys(graph.consumers[symbol]):
        if consumer in taking or consumer in graph.outputs:
            continue
        demands = expansion_of(consumer).demands(consumer, graph)
        wanted = {demand for demand, source in zip(demands, consumer.inputs, strict=True) if source is symbol}
        if wanted & {Demand.NARROW, Demand.CHANNELS}:
            yield consumer
