"""From the outputs of a graph to its inputs: each tensor's plan, made of its facts and the plans of its readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mrt.calibration import Range
from mrt.quantization.demand import Demand
from mrt.quantization.expansion import expansion_of, takes_groups
from mrt.quantization.plan.concat_parts import output_target, part_targets
from mrt.quantization.plan.facts import Facts
from mrt.quantization.plan.own_quantizers import own_target
from mrt.quantization.plan.states import takes_held
from mrt.quantization.quantizer import Target
from mrt.quantization.tensor_plan import UNLIMITED, Edge, Plan, TensorPlan, was_zero
from mrt.symbol import Array, Graph, Symbol

EXACT_GUARD_BITS = 14
"""How many bits finer sums are that a quantizer of the network rounds."""
FINEST_STEPS = 2**20
"""A quantizer that covers a part of a tensor's range only has steps of at least this share of the range, so that sums
at a scale that is 4 bits finer keep room within 32 bits."""
Ends = tuple[float, float]
Finished = Mapping[str, TensorPlan]
"""The plans of the tensors behind the one that is planned, by name."""


def plan_tensors(facts: Facts) -> Plan:
    """The plan of every tensor of the graph; every fact must be filled."""
    graph, finished = facts.graph, dict[str, TensorPlan]()
    for symbol in reversed((*graph.inputs, *graph.symbols)):
        finished[symbol.name] = _planned(symbol, facts, finished)
    return Plan(graph, facts.config, finished, facts.left_alone)


def _planned(symbol: Symbol, facts: Facts, finished: Finished) -> TensorPlan:
    """The plan of a tensor all of whose readers are planned."""
    name, graph = symbol.name, facts.graph
    quantizers, fixed = _quantizers(symbol, facts, finished), facts.fixed.get(symbol.name)
    edges = _edges(symbol, quantizers, facts, finished)
    output = output_target(name, facts)
    output = fixed if fixed is not None and fixed.groups is None else output
    output = facts.states.get(name, output)
    forms = _Forms.of(symbol, output, edges, graph, finished)
    guard_bits = 0 if symbol.is_variable else expansion_of(symbol).guard_bits
    added = _added_constant(symbol, forms.saturates, facts)
    read = forms.next_target or quantizers.own
    common_scale = read.scale * 2.0 ** -_guard_bits(guard_bits, read, quantizers.own)
    return TensorPlan(
        range=facts.ranges[name],
        options=facts.options[name],
        never_negative=facts.never_negative[name],
        fixed=fixed,
        constant=facts.constants.get(name),
        guard_bits=guard_bits,
        ends_graph=_ends_graph(symbol, graph),
        own=quantizers.own,
        narrow=quantizers.narrow,
        grouped=quantizers.grouped,
        used=quantizers.used,
        output=output,
        edges=edges,
        next_target=forms.next_target,
        saturates=forms.saturates,
        common_scale=max(common_scale, _coarse_enough(symbol, added, facts)),
        parts=part_targets(symbol, facts, forms.next_target),
        added_constant=added,
    )


def _ends_graph(symbol: Symbol, graph: Graph) -> bool:
    """Whether a symbol only brings its input's values to the graph's output."""
    return symbol.operator.keeps_scale and symbol in graph.outputs and not graph.consumers[symbol]


# The tensor's quantizers


@dataclass(frozen=True)
class _Quantizers:
    """See `TensorPlan`."""

    own: Target
    narrow: Target
    grouped: Target | None
    used: Range | None


def _quantizers(symbol: Symbol, facts: Facts, finished: Finished) -> _Quantizers:
    """What a tensor's quantizers cover: its range, or the part of it that its readers tell apart."""
    name = symbol.name
    calibrated, own, fixed = facts.ranges[name], facts.own[name], facts.fixed.get(name)
    narrow, used, covered = own, None, None
    if name in facts.states:
        narrow = own_target(facts.graph, symbol, facts.options[name], calibrated, facts.never_negative[name])
    part, alone = _told_apart(symbol, calibrated, facts.graph, finished)
    if part != calibrated and fixed is None:
        covered = _covered(part, calibrated, own)
        narrow = own_target(facts.graph, symbol, facts.options[name], covered, facts.never_negative[name])
        if alone and name not in facts.states:
            own, used = narrow, part
    grouped = fixed if fixed is not None and fixed.groups is not None else None
    if name in facts.splits:
        grouped = facts.splits[name].target(covered)
    return _Quantizers(own, narrow, grouped, used)


def _told_apart(symbol: Symbol, calibrated: Range, graph: Graph, finished: Finished) -> tuple[Range, bool]:
    """The part of a tensor's range that its NARROW and CHANNELS readers tell apart, and whether it has no others."""
    parts: list[Ends] = []
    alone = symbol not in graph.outputs
    for reader in dict.fromkeys(graph.consumers[symbol]):
        expansion = expansion_of(reader)
        for demand, source in zip(expansion.demands(reader, graph), reader.inputs, strict=True):
            if source is not symbol:
                continue
            if demand not in (Demand.NARROW, Demand.CHANNELS):
                alone = False
            elif expansion.reach is None:
                return calibrated, False
            else:
                parts.append(expansion.reach(reader, finished[reader.name], calibrated.lo, calibrated.hi))
    if not parts:
        return calibrated, False
    return Range(min(lo for lo, _ in parts), max(hi for _, hi in parts)), alone


def _covered(part: Range, calibrated: Range, own: Target) -> Range:
    """What a quantizer covers for the sake of a part of the calibrated range.

    It is a step more on either side, since a zero point is rounded, and no less than FINEST_STEPS allow.
    """
    least = 2 * calibrated.magnitude * own.reach / FINEST_STEPS
    width = part.hi - part.lo
    margin = max(width / (own.hi - own.lo), (least - width) / 2)
    return Range(max(part.lo - margin, calibrated.lo), min(part.hi + margin, calibrated.hi))


# What readers take


def _edges(symbol: Symbol, quantizers: _Quantizers, facts: Facts, finished: Finished) -> dict[Edge, Target | None]:
    """The form that each reader takes, once for each of its inputs that the tensor is."""
    return {
        (reader.name, index): _edge(symbol, reader, index, quantizers, facts, finished)
        for reader in dict.fromkeys(facts.graph.consumers[symbol])
        for index, source in enumerate(reader.inputs)
        if source is symbol
    }


def _edge(
    symbol: Symbol, reader: Symbol, index: int, quantizers: _Quantizers, facts: Facts, finished: Finished
) -> Target | None:
    """The form in which `reader` takes `symbol`, its input `index`; None for any form."""
    planned, expansion = finished[reader.name], expansion_of(reader)
    found = facts.ranges[symbol.name]
    match expansion.demands(reader, facts.graph)[index]:
        case Demand.WIDE:
            return None
        case Demand.GRID:
            return expansion.grid(reader, facts.graph)
        case Demand.NARROW | Demand.CHANNELS if planned.ends_graph:
            return planned.output
        case Demand.NARROW | Demand.CHANNELS if symbol.name in facts.held and takes_held(reader, facts):
            return facts.held[symbol.name]
        case Demand.CHANNELS if quantizers.grouped and _takes(reader, index, quantizers.grouped):
            return quantizers.grouped
        case Demand.NARROW | Demand.CHANNELS:
            return quantizers.narrow
        case Demand.OUTPUT:
            return planned.output_quantizer(was_zero(found, quantizers.own))
        case Demand.COMMON if planned.is_summed_exactly:
            return None
        case Demand.COMMON if planned.parts is not None:
            return planned.parts[index]
        case Demand.COMMON:
            return planned.common_target(found, facts.never_negative[symbol.name], len(reader.inputs))


def _takes(reader: Symbol, index: int, grouped: Target) -> bool:
    """Whether input `index` is taken in these channel groups.

    The scales that trained quantization gives channels are integer multiples of a common one that is too fine to add
    them up: only a layer takes them whose outputs read one channel each.
    """
    if grouped.groups is None or not takes_groups(reader, index, grouped.groups.axis):
        return False
    source = reader.inputs[index]
    is_summed = reader.operator.data_channel_axis(source.type.rank) is not None
    if not grouped.exact or not is_summed or set(grouped.groups.factors) == {1}:
        return True
    return int(getattr(reader.operator, "num_group", 1)) == source.shape[grouped.groups.axis]


@dataclass(frozen=True)
class _Forms:
    """What all that reads a tensor has in common; see `TensorPlan`."""

    next_target: Target | None
    saturates: Ends

    @classmethod
    def of(
        cls, symbol: Symbol, output: Target, edges: Mapping[Edge, Target | None], graph: Graph, finished: Finished
    ) -> _Forms:
        targets = [output] if symbol in graph.outputs else []
        ends = [_ends(output) for output in targets]
        readers = {reader.name: reader for reader in graph.consumers[symbol]}
        for (name, _), edge in edges.items():
            ends.append(_ends(edge) if edge is not None else _ends_behind(readers[name], finished))
            target = edge if edge is not None else _target_behind(symbol, readers[name], graph, finished)
            targets += [] if target is None else [target]
        return cls(_finest(targets), _hull(ends or [(-np.inf, np.inf)]))


def _finest(targets: Sequence[Target]) -> Target | None:
    """The target of the finest scale, without limits where there are several; None of none."""
    found = min(targets, key=lambda target: target.scale, default=None)
    return found if found is None or len(set(targets)) == 1 else _unlimited(found)


def _hull(ends: Sequence[Ends]) -> Ends:
    return min(lo for lo, _ in ends), max(hi for _, hi in ends)


def _ends(target: Target) -> Ends:
    """The real interval that a form holds, of channel groups the widest; infinite where it says the scale only.

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


def _ends_behind(reader: Symbol, finished: Finished) -> Ends:
    """Where what reads a wide tensor behind an operator that passes it on saturates."""
    return finished[reader.name].saturates if reader.operator.keeps_scale else (-np.inf, np.inf)


def _target_behind(symbol: Symbol, reader: Symbol, graph: Graph, finished: Finished) -> Target | None:
    """What a wide tensor is rescaled to behind an operator that passes it on, in the tensor's own scale.

    Behind one that changes values, such as the addition of a bias, the range is another. Channel groups that
    lie along no axis of the tensor are their coarsest scale there.
    """
    resolved = expansion_of(reader).resolution(reader, graph)
    if resolved:
        return Target(resolved, -UNLIMITED, UNLIMITED, pinned=True, exact=True)
    target = finished[reader.name].next_target
    gain = expansion_of(reader).gain(reader, graph)
    if target is None or gain == 0:
        return None
    target = _before(target, symbol, reader)
    found = replace(target, scale=target.scale / gain)
    return found if reader.operator.keeps_scale else _unlimited(found)


def _before(target: Target, symbol: Symbol, reader: Symbol) -> Target:
    """A target of what `reader` makes of `symbol`, its channel groups along that axis of it which becomes theirs."""
    groups, index = target.groups, reader.inputs.index(symbol)
    if groups is None:
        return target
    types = [source.type for source in reader.inputs]
    for axis in range(1, symbol.type.rank):
        is_kept = reader.operator.kept_axis(axis, index, *types) == groups.axis
        if is_kept and symbol.shape[axis] == reader.shape[groups.axis]:
            return replace(target, groups=replace(groups, axis=axis))
    return _unlimited(replace(target, scale=float(target.scales(reader.shape).max()), groups=None))


def _unlimited(target: Target) -> Target:
    return replace(target, lo=-UNLIMITED, hi=UNLIMITED)


# The scale to which inputs are brought


def _added_constant(symbol: Symbol, saturates: Ends, facts: Facts) -> Array | None:
    """The constant operand that joins the accumulator, float64, as far as it makes a difference; None of others.

    What brings the sum out of the range in which its readers tell values apart, whatever the calibrated data, can as
    well be less: a channel that -1e10 turns off is turned off by little more than its data.
    """
    if symbol.is_variable or not expansion_of(symbol).adds_constant:
        return None
    values = [facts.graph.value(source) for source in symbol.inputs]
    constant = next((value for value in values if value is not None), None)
    data = [source for source, value in zip(symbol.inputs, values, strict=True) if value is None]
    if constant is None or not data:
        return None
    lo, hi = saturates
    reach = facts.ranges[data[0].name].magnitude
    return np.clip(constant.astype(np.float64), lo - reach, hi + reach)


def _guard_bits(guard: int, next_target: Target, own: Target) -> int:
    """How many bits finer than what it is rescaled to next a symbol brings its inputs to one scale.

    A pinned target may be finer than the tensor's own quantizer already, as that of a sum which reads it: along a chain
    of sums guard bits are taken once. Before a quantizer of the network there are more of them, so that what it rounds
    is as good as exact.
    """
    if next_target.exact:
        return EXACT_GUARD_BITS if guard else 0
    finer = np.rint(np.log2(own.scale / next_target.scale)) if next_target.pinned else 0
    return int(np.clip(guard - finer, 0, guard))


def _coarse_enough(symbol: Symbol, constant: Array | None, facts: Facts) -> float:
    """The scale at which the sum of an operator's inputs keeps within UNLIMITED steps, and so within 32 bits.

    constant: what it adds at its own scale. Its error is at most 2^-30 of the largest sum, less than float32 rounds it.
    """
    operands = [source for source in symbol.inputs if constant is None or facts.graph.value(source) is None]
    largest = [facts.ranges[source.name].magnitude for source in operands]
    if constant is not None:
        largest.append(float(np.abs(constant).max(initial=0.0)))
    return max(largest, default=0.0) * len(largest) / UNLIMITED
