"""From the outputs of a graph to its inputs: what of a tensor matters, what it meets next, and each common scale."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from mrt.calibration import Range
from mrt.quantization.expansion import Demand, expansion_of
from mrt.quantization.plan.channel_splits import ChannelSplit
from mrt.quantization.plan.own_quantizers import own_target
from mrt.quantization.plan.ranges import magnitude
from mrt.quantization.plan.tensor_plan import UNLIMITED, Plan
from mrt.quantization.quantizer import Target
from mrt.symbol import Symbol

EXACT_GUARD_BITS = 14
"""How many bits finer sums are that a quantizer of the network rounds."""
FINEST_STEPS = 2**20
"""A quantizer that covers a part of a tensor's range only has steps of at least this share of the range, so that sums
at a scale that is 4 bits finer keep room within 32 bits."""
Ends = tuple[float, float]


def look_ahead(draft: Plan, ranges: Mapping[str, Range], splits: Mapping[str, ChannelSplit]) -> Plan:
    """The plan that a draft becomes, which knows of every tensor's own quantizer only.

    ranges: of all tensors. splits: those that are split into channel groups, by name.
    """
    walk = _Walk(draft, ranges, splits)
    for symbol in reversed((*draft.graph.inputs, *draft.graph.symbols)):
        walk.visit(symbol)
    return walk.plan


class _Walk:
    """The tables of a plan while they fill: what is said of a tensor follows from what is said of its readers.

    plan: of all tensors that were visited, and complete for them.
    """

    def __init__(self, draft: Plan, ranges: Mapping[str, Range], splits: Mapping[str, ChannelSplit]) -> None:
        self._ranges, self._splits = ranges, splits
        self._own, self._narrow, self._grouped = dict(draft.own), dict(draft.own), dict(draft.grouped)
        self._reached: dict[str, Range] = {}
        self._common: dict[str, float] = {}
        self._meets: dict[str, Target | None] = {}
        self._saturates: dict[str, Ends] = {}
        self.plan = replace(
            draft,
            own=self._own,
            narrow=self._narrow,
            grouped=self._grouped,
            reached=self._reached,
            common=self._common,
            meets=self._meets,
            saturates=self._saturates,
        )

    def visit(self, symbol: Symbol) -> None:
        """Fills in what is known of a tensor whose readers were all visited."""
        self._cover(symbol)
        met = [self.plan.output(symbol)] if symbol in self.plan.graph.outputs else []
        ends = [_ends(target) for target in met]
        for reader, edge in self._edges(symbol):
            ends.append(_ends(edge) if edge is not None else _ends_behind(self.plan, reader))
            target = edge if edge is not None else _through(self.plan, symbol, reader)
            if target is not None:
                met.append(target)
        ends = ends or [(-np.inf, np.inf)]
        self._saturates[symbol.name] = min(lo for lo, _ in ends), max(hi for _, hi in ends)
        found = min(met, key=lambda target: target.scale, default=None)
        self._meets[symbol.name] = found if found is None or len(set(met)) == 1 else _unlimited(found)
        if not symbol.is_variable:
            self._common[symbol.name] = self._common_scale(symbol, found or self._own[symbol.name])

    def _cover(self, symbol: Symbol) -> None:
        """Settles what a tensor's quantizers cover: its range, or the part of it that matters."""
        name, calibrated, covered = symbol.name, self._ranges[symbol.name], None
        matters, alone = _reach(self.plan, symbol, calibrated)
        if matters != calibrated and name not in self.plan.fixed:
            covered = _covered(matters, calibrated, self._own[name])
            is_positive = name in self.plan.never_negative
            self._narrow[name] = own_target(self.plan.graph, symbol, self.plan.asked[name], covered, is_positive)
            if alone:
                self._own[name], self._reached[name] = self._narrow[name], matters
        if name in self._splits:
            self._grouped[name] = self._splits[name].target(covered)

    def _edges(self, symbol: Symbol) -> Iterator[tuple[Symbol, Target | None]]:
        """The readers of a tensor, once for each input that it is, with the form in which they want it."""
        for reader in dict.fromkeys(self.plan.graph.consumers[symbol]):
            for index, source in enumerate(reader.inputs):
                if source is symbol:
                    yield reader, self.plan.edge(reader, index)

    def _common_scale(self, symbol: Symbol, meets: Target) -> float:
        """The scale to which an operator with COMMON inputs brings them."""
        scale = meets.scale * 2.0 ** -_guard_bits(symbol, meets, self._own[symbol.name])
        return max(scale, _coarse_enough(self.plan, symbol))


def _coarse_enough(plan: Plan, symbol: Symbol) -> float:
    """The scale at which the sum of an operator's inputs keeps within UNLIMITED steps, and so within 32 bits.

    Its error is at most 2^-30 of the largest sum, less than float32 rounds it.
    """
    constant = plan.added_constant(symbol) if expansion_of(symbol).adds_constant else None
    operands = [source for source in symbol.inputs if constant is None or plan.graph.value(source) is None]
    largest = [plan.magnitudes[source.name] for source in operands]
    if constant is not None:
        largest.append(float(np.abs(constant).max(initial=0.0)))
    return max(largest, default=0.0) * len(largest) / UNLIMITED


def _ends(target: Target) -> Ends:
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


def _ends_behind(plan: Plan, carrier: Symbol) -> Ends:
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


def _reach(plan: Plan, symbol: Symbol, calibrated: Range) -> tuple[Range, bool]:
    """The part of a tensor's range that its NARROW and CHANNELS consumers tell apart, and whether it has no others."""
    parts: list[Ends] = []
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
    return Range(min(lo for lo, _ in parts), max(hi for _, hi in parts)), alone


def _covered(matters: Range, calibrated: Range, own: Target) -> Range:
    """What a quantizer covers for the sake of a part of the calibrated range.

    It is a step more on either side, since a zero point is rounded, and no less than FINEST_STEPS allow.
    """
    least = 2 * magnitude(calibrated) * own.reach / FINEST_STEPS
    width = matters.hi - matters.lo
    margin = max(width / (own.hi - own.lo), (least - width) / 2)
    return Range(max(matters.lo - margin, calibrated.lo), min(matters.hi + margin, calibrated.hi))


def _through(plan: Plan, symbol: Symbol, carrier: Symbol) -> Target | None:
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


def _unlimited(target: Target) -> Target:
    return replace(target, lo=-UNLIMITED, hi=UNLIMITED)
