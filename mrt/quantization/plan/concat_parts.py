"""The parts of concatenations: which of them keep scales of their own, what that gains, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from mrt.calibration import Range
from mrt.quantization.cost import added_operations, multiplications
from mrt.quantization.demand import Demand
from mrt.quantization.exact_integers import is_computed
from mrt.quantization.expansion import expansion_of, group_readers
from mrt.quantization.options import ActivationConfig
from mrt.quantization.plan.channel_split import ChannelSplit
from mrt.quantization.plan.facts import FactPass, Facts
from mrt.quantization.plan.parts import Parts
from mrt.quantization.quantizer import ChannelGroups, Target, symmetric_target
from mrt.quantization.tensor_plan import UNLIMITED, Plan
from mrt.symbol import Graph, Interval, Symbol
from mrt.symbol.interval import signed_bits

LEAST_PART_BITS = 12
"""The bits that each part of an output has at least, where nothing is asked of its bits."""
MOST_OUTPUT_BITS = 24
"""The most bits of an output: float32 holds them."""
LEAST_GAIN = 3.0
"""Decibels; half a bit of one part, below which a scale of its own is not worth its operations."""


def parts_of(graph: Graph, ranges: Mapping[str, Range]) -> dict[str, Parts]:
    """The tensors that are joined of others, and those behind whose parts stay apart and have ranges that follow."""
    found: dict[str, Parts] = {}
    for symbol in graph.operators:
        axis = symbol.operator.joined_axis(symbol.type.rank)
        parts = _behind(graph, symbol, found) if axis is None else _joined(symbol, axis, ranges, found)
        if parts is not None and parts.axis > 0 and len(parts.lengths) > 1:
            found[symbol.name] = parts.within(ranges[symbol.name])
    return found


def _joined(symbol: Symbol, axis: int, ranges: Mapping[str, Range], found: Mapping[str, Parts]) -> Parts:
    """The inputs of a concatenation, those that are joined of parts themselves as these."""
    lengths: list[int] = []
    values: list[tuple[float, float]] = []
    for source in symbol.inputs:
        inner, whole = found.get(source.name), ranges[source.name]
        if inner is not None and inner.axis == axis:
            lengths += inner.lengths
            values += inner.ranges
        else:
            lengths.append(source.shape[axis])
            values.append((whole.lo, whole.hi))
    return Parts(axis, tuple(lengths), tuple(values))


def _behind(graph: Graph, symbol: Symbol, found: Mapping[str, Parts]) -> Parts | None:
    """The parts of what an operator makes of one tensor; None where they do not stay apart."""
    computed = [index for index, source in enumerate(symbol.inputs) if graph.value(source) is None]
    parts = found.get(symbol.inputs[computed[0]].name) if len(computed) == 1 else None
    if parts is None:
        return None
    source = symbol.inputs[computed[0]]
    axis = symbol.operator.kept_axis(parts.axis, computed[0], *(each.type for each in symbol.inputs))
    if axis is None or axis == 0:
        return None
    neighbours = symbol.shape[axis] // source.shape[parts.axis]
    lengths = tuple(length * neighbours for length in parts.lengths)
    if symbol.operator.keeps_scale:
        return Parts(axis, lengths, parts.ranges)
    bounds = symbol.operator.bounds(*_intervals(graph, symbol, source, parts)).reduced([axis])
    if np.isnan(bounds.lo).any() or np.isnan(bounds.hi).any():
        return None
    ends = np.cumsum((0, *lengths))
    channels = [np.broadcast_to(end.reshape(-1), (symbol.shape[axis],)) for end in (bounds.lo, bounds.hi)]
    ranges = tuple((float(channels[0][a:b].min()), float(channels[1][a:b].max())) for a, b in pairwise(ends))
    return Parts(axis, lengths, ranges)


def _intervals(graph: Graph, symbol: Symbol, source: Symbol, parts: Parts) -> Iterator[Interval]:
    shape = tuple(-1 if axis == parts.axis else 1 for axis in range(source.type.rank))
    lo, hi = np.array(parts.channels, np.float64).T
    for each in symbol.inputs:
        value = graph.value(each)
        if value is None:
            yield Interval(lo.reshape(shape), hi.reshape(shape), source.shape)
        else:
            yield Interval.constant(value)


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A tensor that is rounded, and what carries its integers on, with the splits of each. gain: in dB, of the part
    that gains most. operations: what that adds, per sample."""

    symbol: Symbol
    splits: Mapping[str, ChannelSplit]
    gain: float
    operations: int


def _candidates(facts: Facts) -> Iterator[_Candidate]:
    """The tensors of which a part gains by a scale of its own."""
    graph, parts = facts.graph, facts.parts
    for symbol in graph.operators:
        if symbol.name not in parts or (_carries(graph, symbol) and symbol.inputs[0].name in parts):
            continue
        splits, layers = _carried_on(facts, symbol, parts)
        split = splits.get(symbol.name)
        if split is None:
            continue
        groups = split.target(None).groups
        if groups is None or len(set(groups.factors)) == 1:
            continue
        gain = 20 * math.log10(facts.own[symbol.name].scale / min(t.scale for t in split.target(None).group_targets))
        spread = [groups.factors[channel // groups.step] for channel in range(len(split.channels))]
        added = sum(added_operations(layer, np.repeat(spread, by).tolist()) for layer, by in layers)
        if gain >= LEAST_GAIN:
            yield _Candidate(symbol, splits, gain, added)


def _carried_on(
    facts: Facts, symbol: Symbol, parts: Mapping[str, Parts]
) -> tuple[dict[str, ChannelSplit], list[tuple[Symbol, int]]]:
    """The split of a tensor and of what holds its integers, as far as they are read in channel groups; and the layers
    that sum over these, each with how many of its channels are one of the tensor's."""
    graph, splits = facts.graph, dict[str, ChannelSplit]()
    layers: list[tuple[Symbol, int]] = []
    pending = [symbol]
    while pending:
        given = pending.pop()
        found, options = parts[given.name], facts.options[given.name]
        readers = group_readers(graph, given, found.axis)
        if not readers or not isinstance(options, ActivationConfig) or options.granularity != "layer":
            continue
        never_negative = facts.never_negative[given.name]
        splits[given.name] = ChannelSplit(found.channels, found.axis, found.step, options, never_negative)
        for reader in readers:
            if reader.operator.weight_channel_axis is not None:
                layers.append((reader, sum(found.lengths) // sum(parts[symbol.name].lengths)))
            elif _carries(graph, reader) and reader.name in parts:
                pending.append(reader)
    return splits, layers


def _carries(graph: Graph, symbol: Symbol) -> bool:
    """Whether an operator gives the integers of the channel groups that it reads, so that nothing is rounded anew."""
    return symbol.operator.keeps_scale and Demand.CHANNELS in expansion_of(symbol).demands(symbol, graph)


def part_splits(facts: Facts) -> dict[str, ChannelSplit]:
    """The tensors, by name, whose parts keep scales of their own, as channel groups of a common length.

    They are taken by gain per operation while the sum of what they add stays within `max_extra_operations` times the
    network's multiplications. None in a network that brings quantizers: it says its scales itself.
    """
    return {name: split for each, is_taken in _chosen(facts) if is_taken for name, split in each.splits.items()}


def _chosen(facts: Facts) -> list[tuple[_Candidate, bool]]:
    if facts.fixed:
        return []
    room = facts.config.max_extra_operations * sum(multiplications(symbol) for symbol in facts.graph.operators)
    chosen = []
    for candidate in sorted(_candidates(facts), key=lambda each: -each.gain / (1 + each.operations)):
        is_taken = candidate.operations <= room
        room -= candidate.operations if is_taken else 0
        chosen.append((candidate, is_taken))
    return chosen


def _too_dear(facts: Facts) -> tuple[str, ...]:
    return tuple(
        f"{each.symbol.name} ({each.symbol.op}): one scale for all its parts; one of them would have {each.gain:.1f} "
        f"dB less noise at its own, beyond max_extra_operations"
        for each, is_taken in _chosen(facts)
        if not is_taken
    )


PARTS = FactPass("parts", lambda facts: parts_of(facts.graph, facts.ranges), ("ranges",))
PART_SPLITS = FactPass("part_splits", part_splits, ("fixed", "parts", "options", "own", "never_negative"), _too_dear)


def output_target(name: str, facts: Facts) -> Target:
    """The quantizer of an output. Integers that are computed of integers stay as they are.

    In a network that brings quantizers it has room beyond the range that was calibrated, where no bits are asked for:
    the network does not saturate there. What it adds up at its end is rounded once, as before a quantizer.
    """
    if is_computed(facts.graph.by_name[name]):
        return facts.own[name]
    magnitude, bits = facts.ranges[name].magnitude, output_bits(name, facts)
    if facts.fixed and "bits" not in facts.config.output.model_fields_set:
        magnitude, bits = np.ldexp(magnitude, max(MOST_OUTPUT_BITS - bits, 0)), MOST_OUTPUT_BITS
        return replace(symmetric_target(magnitude, bits, signed=True), exact=True)
    return symmetric_target(magnitude, bits, signed=True)


def output_bits(name: str, facts: Facts) -> int:
    """The bits of an output: as asked, or where nothing is as many as leave its narrowest part LEAST_PART_BITS.

    An output has one scale, that of boxes and of their scores in one tensor.
    """
    asked, parts = facts.config.output, facts.parts.get(name)
    if parts is None or "bits" in asked.model_fields_set:
        return asked.bits
    magnitudes = [max(abs(lo), abs(hi)) for lo, hi in parts.ranges]
    ratio = max(magnitudes) / min((each for each in magnitudes if each > 0), default=1.0)
    needed = math.ceil(math.log2(max(ratio, 1.0))) + LEAST_PART_BITS + math.ceil(math.log2(asked.room))
    return int(np.clip(needed, asked.bits, MOST_OUTPUT_BITS))


def part_targets(symbol: Symbol, facts: Facts, read: Target | None) -> tuple[Target, ...] | None:
    """The form to which an operator that joins its inputs brings each; None where all get one scale.

    read: what the result is rescaled to next. Its channel groups say the scale of each part; without limits the parts
    are held as far as their values go, and counted from the real zero.
    """
    axis = symbol.operator.joined_axis(symbol.type.rank)
    options = facts.options[symbol.name]
    if axis is None or read is None or read.groups is None or read.groups.axis != axis or facts.fixed:
        return None
    if not isinstance(options, ActivationConfig) or options.granularity != "layer":
        return None
    targets, start = [], 0
    for source in symbol.inputs:
        end = start + source.shape[axis]
        if start % read.groups.step or (end % read.groups.step and end < symbol.shape[axis]):
            return None
        targets.append(_slice(read, start, end, facts.ranges[source.name].magnitude))
        start = end
    return tuple(targets)


def _slice(read: Target, start: int, end: int, magnitude: float) -> Target:
    """The form of channels `start` to `end` of a tensor in channel groups; pinned, since others share its scales."""
    groups = read.groups
    if groups is None:
        return read
    chosen = slice(start // groups.step, -(-end // groups.step))
    factors, zero_points, lo, hi = groups.factors[chosen], groups.zero_points[chosen], read.lo, read.hi
    if read.hi >= UNLIMITED:
        top = max(int(np.rint(min(magnitude / (read.scale * min(factors)), UNLIMITED))), 1)
        zero_points, lo, hi = (0,) * len(factors), -top, top
    if len({*zip(factors, zero_points, strict=True)}) == 1:
        return Target(read.scale * factors[0], lo, hi, True, zero_points[0], exact=read.exact)
    inner = ChannelGroups(groups.axis, groups.step, factors, zero_points)
    return Target(read.scale, lo, hi, True, groups=inner, exact=read.exact)


def part_notes(plan: Plan) -> tuple[str, ...]:
    """A note for every operator whose inputs keep scales of their own, and for every output that has more bits."""
    notes = []
    for symbol in plan.graph.operators:
        parts = plan[symbol].parts
        if parts is None:
            continue
        finest = min(each.scale for part in parts for each in part.group_targets)
        gain = 20 * math.log10(plan[symbol].own.scale / finest)
        notes.append(
            f"{symbol.name} ({symbol.op}): its parts keep their own scales, up to {gain:.1f} dB less noise in one"
        )
    for symbol in plan.graph.outputs:
        tensor, bits = plan[symbol], signed_bits(plan[symbol].output.hi)
        if tensor.fixed is None and not tensor.output.exact and bits > plan.config.output.bits:
            notes.append(f"output {symbol.name}: {bits} bits, so that the narrowest of its parts has {LEAST_PART_BITS}")
    return tuple(notes)
