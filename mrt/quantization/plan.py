"""The scale plan: for every edge of the prepared float graph, the integer form that its consumer wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from mrt.calibration import Threshold
from mrt.errors import QuantizationError
from mrt.quantization.attention_masks import bits_besides, scores_of
from mrt.quantization.expansion import Demand, expansion_of, group_readers, takes_groups
from mrt.quantization.granularity import covered_channels, grouped_target
from mrt.quantization.options import MOST_BITS, ActivationConfig, InputConfig, QuantizationConfig
from mrt.quantization.quantizer import SMALLEST_SCALE, Target, affine_target, symmetric_target
from mrt.quantization.ranges import calibrated_ranges, magnitude, never_negative_tensors
from mrt.quantization.trained import FINE_BITS, ConstantGrid, fine_tensors, fixed_targets, fold_constants, one_scale
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.channels import channel_axes

Asked = ActivationConfig | InputConfig | Target
UNLIMITED = 2**30
"""The reach of a target that tells the scale only."""
EXACT_GUARD_BITS = 14
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
    quantizer is the narrow one. fixed: the forms that trained quantization gives; they are own, or grouped, as they
    are. constants: the integers of parameters that came quantized. common: the scale to which an operator with COMMON
    inputs brings them. meets: the target that a tensor's wide form meets first, at the tensor's own scale; None where
    nothing rescales it. saturates: the real interval outside of which everything that reads a tensor's wide form
    saturates; infinite where something does not.
    """

    graph: Graph
    config: QuantizationConfig
    asked: Mapping[str, Asked]
    own: Mapping[str, Target]
    grouped: Mapping[str, Target]
    narrow: Mapping[str, Target]
    reached: Mapping[str, Threshold]
    common: Mapping[str, float]
    meets: Mapping[str, Target | None]
    saturates: Mapping[str, tuple[float, float]]
    magnitudes: Mapping[str, float]
    never_negative: frozenset[str]
    fixed: Mapping[str, Target] = field(default_factory=dict)
    constants: Mapping[str, ConstantGrid] = field(default_factory=dict)

    def edge(self, consumer: Symbol, index: int) -> Target | None:
        """The form in which `consumer` wants input `index`; None for any form."""
        demand = expansion_of(consumer).demands(consumer, self.graph)[index]
        source = consumer.inputs[index]
        if demand is Demand.WIDE:
            return None
        if demand is Demand.GRID:
            return expansion_of(consumer).grid(consumer, self.graph)
        if demand in (Demand.NARROW, Demand.CHANNELS) and self.only_leaves(consumer):
            return self.output(consumer)
        if demand is Demand.NARROW:
            return self.narrow[source.name]
        if demand is Demand.CHANNELS:
            grouped = self.grouped.get(source.name)
            return grouped if grouped and self._takes(consumer, index, grouped) else self.narrow[source.name]
        if demand is Demand.OUTPUT:
            return self.output_quantizer(consumer, source)
        if self.joins_exactly(consumer):
            return None
        return self.common_target(consumer, source)

    def _takes(self, consumer: Symbol, index: int, grouped: Target) -> bool:
        """Whether input `index` is taken in these channel groups.

        The scales that trained quantization gives channels are integer multiples of a common one that is too fine to
        add them up: only a layer takes them whose outputs read one channel each.
        """
        if grouped.groups is None or not takes_groups(consumer, index, grouped.groups.axis):
            return False
        source = consumer.inputs[index]
        is_summed = consumer.operator.data_channel_axis(source.type.rank) is not None
        if not grouped.exact or not is_summed or set(grouped.groups.factors) == {1}:
            return True
        return int(getattr(consumer.operator, "num_group", 1)) == source.shape[grouped.groups.axis]

    def only_leaves(self, symbol: Symbol) -> bool:
        """Whether a symbol only brings its input's values to the graph's output."""
        return symbol.operator.keeps_scale and symbol in self.graph.outputs and not self.graph.consumers[symbol]

    def output_quantizer(self, consumer: Symbol, source: Symbol) -> Target:
        """The quantizer of what `consumer` gives, for `source`.

        A tensor that was only ever zero has a scale that says nothing; it must not become that of the output.
        """
        own = self.grouped.get(consumer.name, self.own[consumer.name])
        own = self.output(consumer) if self.only_leaves(consumer) else own
        if consumer.name in self.fixed:
            return own
        is_zero = self.magnitudes[source.name] < SMALLEST_SCALE * self.own[source.name].reach
        return replace(own, pinned=True) if is_zero else own

    def common_target(self, consumer: Symbol, source: Symbol) -> Target:
        """`source` at the common scale of `consumer`.

        Where that is the scale of what reads the result next, without guard bits, the result's range and zero point
        are taken too, if all its readers saturate it there; else the zero point is 0 and `source` saturates where its
        own quantizer would, but not before a quantizer of the network, which does that itself.
        """
        scale = self.common[consumer.name]
        meets = self.meets[consumer.name] or self.own[consumer.name]
        saturates = meets.groups is None and not meets.pinned and meets.hi < UNLIMITED
        if expansion_of(consumer).guard_bits == 0 and saturates:
            return replace(meets, pinned=True)
        top = max(int(np.rint(self.magnitudes[source.name] / scale)), 1)
        top = UNLIMITED // len(consumer.inputs) if meets.exact else min(top, UNLIMITED)
        least = 0 if source.name in self.never_negative else -top
        return Target(scale, least, top, pinned=True, exact=meets.exact)

    def joins_exactly(self, symbol: Symbol) -> bool:
        """Whether a sum is rounded by a quantizer of the network, and formed of its inputs as they are."""
        meets = self.meets[symbol.name]
        return expansion_of(symbol).guard_bits > 0 and meets is not None and meets.exact

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
        """The form of a graph output: one scale, `output.bits` wide, or what trained quantization gives it."""
        fixed = self.fixed.get(symbol.name)
        if fixed is not None and fixed.groups is None:
            return fixed
        return symmetric_target(self.magnitudes[symbol.name], self.config.output.bits, signed=True)


def observed_tensors(graph: Graph) -> tuple[str, ...]:
    """The tensors whose thresholds the plan needs: all but parameters and those that trained quantization fixes."""
    graph, _ = fold_constants(graph)
    fixed = fixed_targets(graph, {})
    return tuple(s.name for s in (*graph.inputs, *graph.symbols) if graph.value(s) is None and s.name not in fixed)


def make_plan(
    graph: Graph,
    thresholds: Mapping[str, Threshold],
    config: QuantizationConfig,
    constants: Mapping[str, ConstantGrid] | None = None,
) -> ScalePlan:
    """The plan for a prepared graph whose constants are parameters; QuantizationError naming a tensor whose threshold
    is missing.

    constants: the integers of parameters that came quantized; see `fold_constants`.
    """
    config.check_against(graph)
    symbols = (*graph.inputs, *graph.symbols)
    fixed = fixed_targets(graph, config.inputs)
    ranges = calibrated_ranges(graph, thresholds, config, fixed)
    magnitudes = {name: magnitude(threshold) for name, threshold in ranges.items()}
    never_negative = never_negative_tensors(graph, ranges)
    asked = asked_options(graph, ranges, config, fixed)
    own = {
        symbol.name: _own_target(symbol, ranges[symbol.name], graph, symbol.name in never_negative, asked)
        for symbol in symbols
    }
    in_groups = {name: target for name, target in fixed.items() if target.groups is not None}
    draft = ScalePlan(
        graph, config, asked, own, in_groups, own, {}, {}, {}, {}, magnitudes, never_negative, fixed, constants or {}
    )
    return _look_ahead(draft, ranges, _splits(graph, thresholds, never_negative, asked))


def asked_options(
    graph: Graph, ranges: Mapping[str, Threshold], config: QuantizationConfig, fixed: Mapping[str, Target]
) -> dict[str, Asked]:
    """What is asked of every tensor's quantizer.

    0. A tensor that trained quantization fixes has that form.
    1. An input that is given as integers is what the configuration says.
    2. A tensor that holds values of another at its scale, such as a reshaped one, follows that, as far as no override
       names it. It is the same integers only where it has the same range: else it may be resolved finer.
    3. Masked scores keep the step of the scores, in as many bits as the masked ones need besides.
    4. What a network that brings quantizers does not round, and no layer reads, has FINE_BITS, as far as no override
       names it.
    5. Any other has its own options.
    """
    asked: dict[str, Asked] = {}
    fine = fine_tensors(graph, fixed)
    for symbol in (*graph.inputs, *graph.symbols):
        name = symbol.name
        source = symbol.inputs[0].name if symbol.operator.keeps_scale else None
        followed = None if source is None else asked[source]
        scores = scores_of(graph, symbol, ranges)
        if name in fixed:
            asked[name] = fixed[name]
        elif name in fine and not config.overrides_activation(name):
            options = config.activation_of(name)
            asked[name] = options.model_copy(update={"bits": max(options.bits, FINE_BITS)})
        elif isinstance(followed, Target):
            asked[name] = config.activation_of(name)
        elif symbol.is_variable and name in config.inputs:
            asked[name] = config.inputs[name]
        elif scores is not None and not config.overrides_activation(name):
            options = config.activation_of(name)
            besides = bits_besides(ranges[name], ranges[scores.name])
            asked[name] = options.model_copy(update={"bits": min(options.bits + besides, MOST_BITS)})
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
    asked: Mapping[str, Asked],
) -> Target:
    """The quantizer of a tensor that covers a range: the calibrated one, or the part of it that matters."""
    is_parameter = graph.value(symbol) is not None
    options = asked[symbol.name]
    if isinstance(options, Target):
        return one_scale(options)
    if isinstance(options, InputConfig):
        return Target(options.scale, *options.limits, pinned=True, zero_point=options.zero_point)
    if symbol.is_variable and symbol.type.is_integer and not is_parameter:
        raise QuantizationError(f"input {symbol.name} is {symbol.type}; say what its integers are: quantize.inputs")
    if options.quantizer == "affine" and not is_parameter:
        lo = max(threshold.lo, 0.0) if never_negative else threshold.lo
        return affine_target(lo, threshold.hi, options.bits, options.is_signed)
    return symmetric_target(magnitude(threshold), options.bits, signed=not never_negative)


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
        if matters != calibrated and symbol.name not in plan.fixed:
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
    of sums guard bits are taken once. Before a quantizer of the network there are more of them, so that what it rounds
    is as good as exact.
    """
    guard = expansion_of(symbol).guard_bits
    if meets.exact:
        return EXACT_GUARD_BITS if guard else 0
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
    least = 2 * magnitude(calibrated) * own.reach / FINEST_STEPS
    width = matters.hi - matters.lo
    margin = max(width / (own.hi - own.lo), (least - width) / 2)
    return Threshold(max(matters.lo - margin, calibrated.lo), min(matters.hi + margin, calibrated.hi))


def _through(plan: ScalePlan, symbol: Symbol, carrier: Symbol) -> Target | None:
    """What a wide tensor meets behind an operator that passes it on, in the tensor's own scale.

    Behind one that changes values, such as the addition of a bias, the range is another. Channel groups of a tensor of
    another rank lie along another axis; there it is their coarsest scale.
    """
    resolved = expansion_of(carrier).resolves(carrier, plan.graph)
    if resolved:
        return Target(resolved, -UNLIMITED, UNLIMITED, pinned=True, exact=True)
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
    asked: Mapping[str, Asked],
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
        if not isinstance(options, ActivationConfig) or step is None or not group_readers(graph, symbol, axis):
            continue
        if thresholds[symbol.name].channels:
            channels = covered_channels(thresholds[symbol.name])
            found[symbol.name] = _Split(channels, axis, step, options, symbol.name in never_negative)
    return found


def _unlimited(target: Target) -> Target:
    return replace(target, lo=-UNLIMITED, hi=UNLIMITED)
