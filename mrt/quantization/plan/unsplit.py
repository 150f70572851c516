"""Which tensors keep one scale although the options split them, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mrt.calibration import Range
from mrt.quantization.expansion import Demand, expansion_of, group_readers, named
from mrt.quantization.options import ActivationConfig, ChannelGranularity
from mrt.quantization.plan.tensor_plan import Plan
from mrt.symbol import Symbol
from mrt.symbol.channels import channel_axes


def unsplit_notes(plan: Plan, thresholds: Mapping[str, Range]) -> tuple[str, ...]:
    """A note for every reason for which tensors that have channel granularity are read with one scale.

    1. Calibration saw nothing of the channels: they are those of several samples, which the graph has baked in.
    2. An operator needs its input at one scale. One that leaves the scale of its input open (a sum, a relu) or brings
       it to its own (a clip) is none of these: it loses nothing by it.
    """
    unseen: list[str] = []
    readers: dict[tuple[str, str], list[str]] = {}
    for symbol, axis in _split_tensors(plan):
        taking = group_readers(plan.graph, symbol, axis)
        if taking and not thresholds[symbol.name].channels:
            unseen.append(symbol.name)
        elif _granularity(plan, symbol) != "auto":
            for consumer in _reading_at_one_scale(plan, symbol, taking):
                readers.setdefault((consumer.op, expansion_of(consumer).mixes), []).append(symbol.name)
    notes = [f"one scale for what {op} reads, which {mixes}: {named(names)}" for (op, mixes), names in readers.items()]
    if unseen:
        notes.append(f"one scale where calibration saw no channels, since axis 0 counts no samples: {named(unseen)}")
    return tuple(notes)


def _split_tensors(plan: Plan) -> Iterator[tuple[Symbol, int]]:
    """The tensors that would have several groups of channels, and the axis of these.

    Those that are still `auto` are such for which nothing could be decided.
    """
    axes = channel_axes(plan.graph)
    for symbol in plan.graph.operators:
        granularity, axis = _granularity(plan, symbol), axes.get(symbol.name, 0)
        step = granularity.channel if isinstance(granularity, ChannelGranularity) else 1
        if granularity != "layer" and axis > 0 and symbol.shape[axis] > step:
            yield symbol, axis


def _granularity(plan: Plan, symbol: Symbol) -> ChannelGranularity | str:
    options = plan.asked[symbol.name]
    return options.granularity if isinstance(options, ActivationConfig) else "layer"


def _reading_at_one_scale(plan: Plan, symbol: Symbol, taking: Sequence[Symbol]) -> Iterator[Symbol]:
    """The readers that need one scale: none of those taking groups."""
    for consumer in dict.fromkeys(plan.graph.consumers[symbol]):
        if consumer in taking or consumer in plan.graph.outputs:
            continue
        demands = expansion_of(consumer).demands(consumer, plan.graph)
        wanted = {demand for demand, source in zip(demands, consumer.inputs, strict=True) if source is symbol}
        if wanted & {Demand.NARROW, Demand.CHANNELS}:
            yield consumer
