"""The scale plan: for every edge of the prepared float graph, the integer form that its consumer wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mrt.calibration import Threshold
from mrt.errors import QuantizationError
from mrt.quantization.expansion import Demand, expansion_of, group_readers, takes_groups
from mrt.quantization.granularity import covered_channels, grouped_target
from mrt.quantization.options import ActivationConfig, InputConfig, QuantizationConfig
from mrt.quantization.quantizer import SMALLEST_SCALE, Target, affine_target, symmetric_target
from mrt.symbol import Array, Graph, Interval, Symbol
from mrt.symbol.channels import channel_axes

REAL_LIMIT = 1e30
UNLIMITED = 2**30
"""The reach of a target that tells the scale only."""
FINEST_STEPS = 2**20
"""A quantizer that covers a part of a tensor's range only has steps of at least this share of the range, so that sums
at a scale that is 4 bits finer keep room within 32 bits."""


@dataclass(frozen=True)
class ScalePlan:
    """What the expansions ask: targets of edges, of outputs, and of what an accumulator meets next.

    graph: the prepared float graph. asked: the options of every tensor's quantizer, or the integers in which it is
    given. own: the quantizer of every tensor that has a threshold, with one scale. grouped: those in channel groups, of
    the tensors that have them. narrow: what NARROW consumers get; it covers the part of the range that they tell apart.
    reached: that part, for tensors that have no other consumers and of whose range some does not matter; their own
    quantizer is the narrow one. common: the scale to which an operator with COMMON inputs brings them. meets: the
    target that a tensor's wide form meets first, at the tensor's own scale; None where nothing rescales it. saturates:
    the real interval outside of which everything that reads a tensor's wide form saturates; infinite where something
    does not.
    """

    graph: Graph
    config: QuantizationConfig
    asked: Mapping[str, ActivationConfig | InputConfig]
    own: Mapping[str, Target]
    grouped: Mapping[str, Target]
    narrow: Mapping[str, Target]
    reached: Mapping[str, Threshold]
    common: Mapping[str, float]
    meets: Mapping[str, Target | None]
    saturates: Mapping[str, tuple[float, float]]
    magnitudes: Mapping[str, float]
    never_negative: frozenset[str]

    def edge(self, consumer: Symbol, index: int) -> Target | None:
        """The form in which `consumer` wants input `index`; None for any form."""
        demand = expansion_of(consumer).demands(consumer, self.graph)[index]
        source = consumer.inputs[index]
        if demand is Demand.WIDE:
            return None
        if demand in (Demand.NARROW, Demand.CHANNELS) and self._only_leaves(consumer):
            return self.output(consumer)
        if demand is Demand.NARROW:
            return self.narrow[source.name]
        if demand is Demand.CHANNELS:
            grouped = self.grouped.get(source.name)
            is_taken = grouped and grouped.groups and takes_groups(consumer, index, grouped.groups.axis)
            return grouped if is_taken else self.narrow[source.name]
        if demand is Demand.OUTPUT:
            return self.output_quantizer(consumer, source)
        return self.common_target(consumer, source)

    def _only_leaves(self, symbol: Symbol) -> bool:
        """Whether a symbol only brings its input's values to the graph's output."""
        return symbol.operator.keeps_scale and symbol in self.graph.outputs and not self.graph.consumers[symbol]

    def output_quantizer(self, consumer: Symbol, source: Symbol) -> Target:
        """The quantizer of what `consumer` gives, for `source`.

        A tensor that was only ever zero has a scale that says nothing; it must not become that of the output.
        """
        own = self.grouped.get(consumer.name, self.own[consumer.name])
        own = self.output(consumer) if self._only_leaves(consumer) else own
        is_zero = self.magnitudes[source.name] < SMALLEST_SCALE * self.own[source.name].reach
        return replace(own, pinned=True) if is_zero else own

    def common_target(self, consumer: Symbol, source: Symbol) -> Target:
        """`source` at the common scale of `consumer`.

        Where that is the scale of what reads the result next, without guard bits, the result's range and zero point
        are taken too, if all its readers saturate it there; else the zero point is 0 and `source` saturates where its
        own quantizer would.
        """
        scale = self.common[consumer.name]
        meets = self.meets[consumer.name] or self.own[consumer.name]
        saturates = meets.groups is None and not meets.pinned and meets.hi < UNLIMITED
        if expansion_of(consumer).guard_bits == 0 and saturates:
            return replace(meets, pinned=True)
        top = max(int(np.rint(self.magnitudes[source.name] / scale)), 1)
        top = min(top, UNLIMITED)
        return Target(scale, 0 if source.name in self.never_negative else -top, top, pinned=True)

    def bias_after(self, symbol: Symbol) -> Array | None:
        """The constant that the only consumer of `symbol` adds to it, as `added_constant`; None where there is none."""
        consumers = self.graph.consumers[symbol]
        if len(consumers) != 1 or symbol in self.graph.outputs or not expansion_of(consumers[0]).adds_constant:
            return None
        return self.added_constant(consumers[0])

    def added_constant(self, adder: Symbol) -> Array | None:
        """The constant operand of a sum, float64, as far as it tells; None where there is none.

        What brings the sum out of the range in which its readers tell values apart, whatever the calibrated data, can
        as well be less: a channel that -1e10 turns off is turned off by little more than its data.
        """
        values = [self.graph.value(source) for source in adder.inputs]
        constant = next((value for value in values if value is not None), None)
        data = [source for source, value in zip(adder.inputs, values, strict=True) if value is None]
        if constant is None or not data:
            return None
        lo, hi = self.saturates[adder.name]
        reach = self.magnitudes[data[0].name]
        return np.clip(constant.astype(np.float64), lo - reach, hi + reach)

    def output(self, symbol: Symbol) -> Target:
        """The form of a graph output: one scale, `output.bits` wide."""
        return symmetric_target(self.magnitudes[symbol.name], self.config.output.bits, signed=True)


def observed_tensors(graph: Graph) -> tuple[str, ...]:
    """The tensors whose thresholds the plan needs: all but parameters and those that only pass values on."""
    return tuple(s.name for s in (*graph.inputs, *graph.symbols) if graph.value(s) is None)


def make_plan(graph: Graph, thresholds: Mapping[str, Threshold], config: QuantizationConfig) -> ScalePlan:
    """The plan for a prepared graph; QuantizationError naming a tensor whose threshold is missing."""
    config.check_against(graph)
    symbols = (*graph.inputs, *graph.symbols)
    ranges = calibrated_ranges(graph, thresholds)
    magnitudes = {name: _magnitude(threshold) for name, threshold in ranges.items()}
    never_negative = _never_negative(graph, thresholds)
    asked = asked_options(graph, ranges, config)
    own = {
        symbol.name: _own_target(symbol, ranges[symbol.name], graph, symbol.name in never_negative, asked)
        for symbol in symbols
    }
    draft = ScalePlan(graph, config, asked, own, {}, own, {}, {}, {}, {}, magnitudes, never_negative)
    return _look_ahead(draft, ranges, _splits(graph, thresholds, never_negative, asked))


def calibrated_ranges(graph: Graph, thresholds: Mapping[str, Threshold]) -> dict[str, Threshold]:
    """The range of every tensor, parameters included; QuantizationError naming one that was not calibrated."""
    return {symbol.name: _range(graph, symbol, thresholds) for symbol in (*graph.inputs, *graph.symbols)}


def asked_options(
    graph: Graph, ranges: Mapping[str, Threshold], config: QuantizationConfig
) -> dict[str, ActivationConfig | InputConfig]:
    """What is asked of every tensor's quantizer.

    1. An input that is given as integers is what the configuration says.
    2. A tensor that holds values of another at its scale, such as a reshaped one, follows that, as far as no override
       names it. It is the same integers only where it has the same range: else it may be resolved finer.
    3. Any other has its own options.
    """
    asked: dict[str, ActivationConfig | InputConfig] = {}
    for symbol in (*graph.inputs, *graph.symbols):
        name = symbol.name
        source = symbol.inputs[0].name if symbol.operator.keeps_scale else None
        followed = None if source is None else asked[source]
        if symbol.is_variable and name in config.inputs:
            asked[name] = config.inputs[name]
        elif not isinstance(followed, InputConfig):
            asked[name] = config.activation_of(name, followed)
        elif _is_same(ranges[name], ranges[source or ""]) and not config.overrides_activation(name):
            asked[name] = followed
        else:
            asked[name] = config.activation_of(name)
    return asked


def _is_same(found: Threshold, other: Threshold) -> bool:
    """Whether two ranges are one: what is summed up in another order differs by rounding."""
    return bool(np.allclose((found.lo, found.hi), (other.lo, other.hi), rtol=1e-6, atol=0.0))


def _own_target(
    symbol: Symbol,
    threshold: Threshold,
    graph: Graph,
    never_negative: bool,
    asked: Mapping[str, ActivationConfig | InputConfig],
) -> Target:
    """The quantizer of a tensor that covers a range: the calibrated one, or the part of it that matters."""
    is_parameter = graph.value(symbol) is not None
    options = asked[symbol.name]
    if isinstance(options, InputConfig):
        return Target(options.scale, *options.limits, pinned=True, zero_point=options.zero_point)
    if symbol.is_variable and symbol.type.is_integer and not is_parameter:
        raise QuantizationError(f"input {symbol.name} is {symbol.type}; say what its integers are: quantize.inputs")
    if options.quantizer == "affine" and not is_parameter:
        lo = max(threshold.lo, 0.0) if never_negative else threshold.lo
        return affine_target(lo, threshold.hi, options.bits, options.is_signed)
    return symmetric_target(_magnitude(threshold), options.bits, signed=not never_negative)


def _look_ahead(draft: ScalePlan, ranges: Mapping[str, Threshold], splits: Mapping[str, _Split]) -> ScalePlan:
    """Walks from the outputs to the inputs: what of a tensor matters, what its wide form meets, each common scale."""
    graph = draft.graph
    own, narrow, grouped = dict(draft.own), dict(draft.own), dict(draft.grouped)
    reached: dict[str, Threshold] = {}
    common: dict[str, float] = {}
    meets: dict[str, Target | None] = {}
    saturates: dict[str, tuple[float, float]] = {}
    plan = replace(
        draft,
        own=own,
        grouped=grouped,
        narrow=narrow,
        reached=reached,
        common=common,
        meets=meets,
        saturates=saturates,
    )
    outputs = set(graph.outputs)
    for symbol in reversed((*graph.inputs, *graph.symbols)):
        calibrated = ranges[symbol.name]
        matters, alone = _reach(plan, symbol, calibrated)
        covered = None
        if matters != calibrated:
            covered = _covered(matters, calibrated, own[symbol.name])
            is_positive = symbol.name in draft.never_negative
            narrow[symbol.name] = _own_target(symbol, covered, graph, is_positive, draft.asked)
            if alone:
                own[symbol.name], reached[symbol.name] = narrow[symbol.name], matters
        if symbol.name in splits:
            grouped[symbol.name] = splits[symbol.name].target(covered)
        candidates = [plan.output(symbol)] if symbol in outputs else []
        ends = [_ends(target) for target in candidates]
        for consumer in dict.fromkeys(graph.consumers[symbol]):
            for index, source in enumerate(consumer.inputs):
                if source is not symbol:
                    continue
                target = plan.edge(consumer, index)
                ends.append(_ends(target) if target is not None else _ends_behind(plan, consumer))
                if target is None:
                    target = _through(plan, symbol, consumer)
                if target is not None:
                    candidates.append(target)
        saturates[symbol.name] = (
            min((lo for lo, _ in ends), default=-np.inf),
            max((hi for _, hi in ends), default=np.inf),
        )
        found = min(candidates, key=lambda t: t.scale, default=None)
        meets[symbol.name] = found if found is None or len(set(candidates)) == 1 else _unlimited(found)
        if not symbol.is_variable:
            found = found or own[symbol.name]
            scale = found.scale * 2.0 ** -_guard_bits(symbol, found, own[symbol.name])
            common[symbol.name] = max(scale, _coarse_enough(plan, symbol))
    return plan


def _coarse_enough(plan: ScalePlan, symbol: Symbol) -> float:
    """The scale at which the sum of an operator's inputs keeps within UNLIMITED steps, and so within 32 bits.

    Its error is at most 2^-30 of the largest sum, less than float32 rounds it.
    """
    constant = plan.added_constant(symbol) if expansion_of(symbol).adds_constant else None
    operands = [source for source in symbol.inputs if constant is None or plan.graph.value(source) is None]
    largest = [plan.magnitudes[source.name] for source in operands]
    if constant is not None:
        largest.append(float(np.abs(constant).max(initial=0.0)))
    return max(largest, default=0.0) * len(largest) / UNLIMITED


def _ends(target: Target) -> tuple[float, float]:
    """The real interval that a form holds, of channel groups the widest; infinite where it tells the scale only.

    It is widened by a part that no multiplier of 8 bits or more moves a free scale by.
    """
    if target.hi >= UNLIMITED:
        return -np.inf, np.inf
    groups = [(1, target.zero_point)]
    if target.groups is not None:
        groups = list(zip(target.groups.factors, target.groups.zero_points, strict=True))
    lo = min((target.lo - zero_point) * factor for factor, zero_point in groups) * target.scale
    hi = max((target.hi - zero_point) * factor for factor, zero_point in groups) * target.scale
    return lo - (hi - lo) / 64, hi + (hi - lo) / 64


def _ends_behind(plan: ScalePlan, carrier: Symbol) -> tuple[float, float]:
    """Where what reads a wide tensor behind an operator that passes it on saturates."""
    return plan.saturates[carrier.name] if carrier.operator.keeps_scale else (-np.inf, np.inf)


def _guard_bits(symbol: Symbol, meets: Target, own: Target) -> int:
    """How many bits finer than the target that it meets a symbol brings its inputs to one scale.

    A pinned target may be finer than the tensor's own quantizer already, as that of a sum which reads it: along a chain
    of sums guard bits are taken once.
    """
    guard = expansion_of(symbol).guard_bits
    finer = np.rint(np.log2(own.scale / meets.scale)) if meets.pinned else 0
    return int(np.clip(guard - finer, 0, guard))


def _reach(plan: ScalePlan, symbol: Symbol, calibrated: Threshold) -> tuple[Threshold, bool]:
    """The part of a tensor's range that its NARROW and CHANNELS consumers tell apart, and whether it has no others."""
    parts: list[tuple[float, float]] = []
    alone = symbol not in plan.graph.outputs
    for consumer in dict.fromkeys(plan.graph.consumers[symbol]):
        expansion = expansion_of(consumer)
        wanted = expansion.demands(consumer, plan.graph)
        for demand, source in zip(wanted, consumer.inputs, strict=True):
            if source is not symbol:
                continue
            if demand not in (Demand.NARROW, Demand.CHANNELS):
                alone = False
            elif expansion.reach is None:
                return calibrated, False
            else:
                parts.append(expansion.reach(consumer, plan, calibrated.lo, calibrated.hi))
    if not parts:
        return calibrated, False
    return Threshold(min(lo for lo, _ in parts), max(hi for _, hi in parts)), alone


def _covered(matters: Threshold, calibrated: Threshold, own: Target) -> Threshold:
    """What a quantizer covers for the sake of a part of the calibrated range.

    It is a step more on either side, since a zero point is rounded, and no less than FINEST_STEPS allow.
    """
    least = 2 * _magnitude(calibrated) * own.reach / FINEST_STEPS
    width = matters.hi - matters.lo
    margin = max(width / (own.hi - own.lo), (least - width) / 2)
    return Threshold(max(matters.lo - margin, calibrated.lo), min(matters.hi + margin, calibrated.hi))


def _through(plan: ScalePlan, symbol: Symbol, carrier: Symbol) -> Target | None:
    """What a wide tensor meets behind an operator that passes it on, in the tensor's own scale.

    Behind one that changes values, such as the addition of a bias, the range is another. Channel groups of a tensor of
    another rank lie along another axis; there it is their coarsest scale.
    """
    target = plan.meets[carrier.name]
    gain = expansion_of(carrier).gain(carrier, plan.graph)
    if target is None or gain == 0:
        return None
    if target.groups is not None and carrier.type.rank != symbol.type.rank:
        target = _unlimited(replace(target, scale=float(target.scales(carrier.shape).max()), groups=None))
    found = replace(target, scale=target.scale / gain)
    return found if carrier.operator.keeps_scale else _unlimited(found)


@dataclass(frozen=True)
class _Split:
    """A tensor that the options split along `axis`. channels: the range that each channel's quantizer covers."""

    channels: tuple[tuple[float, float], ...]
    axis: int
    step: int
    options: ActivationConfig
    never_negative: bool

    def target(self, covered: Threshold | None) -> Target:
        """The quantizer in channel groups; covered: the part of the tensor's range that matters, None for all."""
        lo, hi = (-np.inf, np.inf) if covered is None else (covered.lo, covered.hi)
        lo = max(lo, 0.0) if self.never_negative else lo
        channels = [(min(max(least, lo), hi), min(max(most, lo), hi)) for least, most in self.channels]
        options = self.options
        signed = options.is_signed if options.quantizer == "affine" else not self.never_negative
        return grouped_target(channels, self.axis, self.step, options.bits, options.quantizer, signed)


def _splits(
    graph: Graph,
    thresholds: Mapping[str, Threshold],
    never_negative: frozenset[str],
    asked: Mapping[str, ActivationConfig | InputConfig],
) -> dict[str, _Split]:
    """The tensors that the options split and that some reader takes in channel groups.

    Inputs keep one scale: they come from outside as integers of one scale. So do tensors of whose channels calibration
    saw nothing.
    """
    found = {}
    axes = channel_axes(graph)
    for symbol in graph.operators:
        options, axis = asked[symbol.name], axes.get(symbol.name, 0)
        step = options.channel_step if isinstance(options, ActivationConfig) else None
        if isinstance(options, InputConfig) or step is None or not group_readers(graph, symbol, axis):
            continue
        if thresholds[symbol.name].channels:
            channels = covered_channels(thresholds[symbol.name])
            found[symbol.name] = _Split(channels, axis, step, options, symbol.name in never_negative)
    return found


def _unlimited(target: Target) -> Target:
    return replace(target, lo=-UNLIMITED, hi=UNLIMITED)


def _range(graph: Graph, symbol: Symbol, thresholds: Mapping[str, Threshold]) -> Threshold:
    """The calibrated range of a tensor; that of a parameter is what it holds."""
    value = graph.value(symbol)
    if value is not None:
        return Threshold(float(value.min()), float(value.max())) if value.size else Threshold(0.0, 0.0)
    try:
        threshold = thresholds[symbol.name]
    except KeyError:
        raise QuantizationError(f"{symbol.name} ({symbol.op}) has no threshold; calibrate it first") from None
    if not np.isfinite(_magnitude(threshold)):
        raise QuantizationError(f"{symbol.name} ({symbol.op}): the threshold {threshold} is not finite")
    return threshold


def _magnitude(threshold: Threshold) -> float:
    return max(abs(threshold.lo), abs(threshold.hi))


def _never_negative(graph: Graph, thresholds: Mapping[str, Threshold]) -> frozenset[str]:
    """The tensors proven to stay at or above zero, by the records' bounds over real intervals.

    Inputs are taken as calibrated, since their quantizer saturates there. Intervals are cut at +-1e30: only signs
    are read from them.
    """
    found: dict[str, Interval] = {}
    for symbol in (*graph.inputs, *graph.symbols):
        value = graph.value(symbol)
        if value is not None:
            found[symbol.name] = Interval.constant(value)
        elif symbol.is_variable:
            threshold = thresholds[symbol.name]
            found[symbol.name] = Interval.of(threshold.lo, threshold.hi, symbol.shape)
        else:
            bounds = symbol.operator.bounds(*(found[source.name] for source in symbol.inputs))
            found[symbol.name] = bounds.map(lambda v: np.clip(v, -REAL_LIMIT, REAL_LIMIT))
    return frozenset(name for name, interval in found.items() if interval.min >= 0)
