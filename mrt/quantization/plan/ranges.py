"""The real range of every tensor: as calibration saw it, as trained quantization fixes it, or as it is proven."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

import numpy as np

from mrt.calibration import Range
from mrt.errors import QuantizationError
from mrt.quantization.expansion import named
from mrt.quantization.options import InputConfig, QuantizationConfig
from mrt.quantization.plan.attention_masks import masked_ranges
from mrt.quantization.plan.facts import FactPass, Facts
from mrt.quantization.plan.final_ranges import final_ranges
from mrt.quantization.plan.states import fixed_state_ranges, state_ranges
from mrt.quantization.plan.trained import saturation_range
from mrt.quantization.quantizer import Target
from mrt.quantization.remedies import given_integers
from mrt.symbol import Graph, Interval, Symbol

REAL_LIMIT = 1e30
"""Where real intervals are cut: what reaches it has no bound."""


def real_intervals(graph: Graph, ranges: Mapping[str, Range]) -> dict[str, Interval]:
    """The real interval of every tensor, by name.

    ranges: those that are known, of all inputs and of any other tensor; the rest follows from them.
    """
    found: dict[str, Interval] = {}
    for symbol in (*graph.inputs, *graph.symbols):
        value, known = graph.value(symbol), ranges.get(symbol.name)
        if value is not None:
            found[symbol.name] = Interval.constant(value)
        elif known is not None:
            found[symbol.name] = Interval.of(float(known.lo), float(known.hi), symbol.shape)
        else:
            bounds = symbol.operator.bounds(*(found[source.name] for source in symbol.inputs))
            found[symbol.name] = bounds.map(lambda v: np.clip(v, -REAL_LIMIT, REAL_LIMIT))
    return found


def proven_ranges(graph: Graph, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """The ranges of tensors that have none in `ranges` and are bounded by those that have."""
    everything = Range(-REAL_LIMIT, REAL_LIMIT)
    missing = [s for s in (*graph.inputs, *graph.symbols) if graph.value(s) is None and s.name not in ranges]
    if not missing:
        return {}
    inputs = {symbol.name: everything for symbol in graph.inputs}
    found = real_intervals(graph, {**inputs, **ranges})
    return {
        symbol.name: Range(float(found[symbol.name].min), float(found[symbol.name].max))
        for symbol in missing
        if found[symbol.name].min > -REAL_LIMIT and found[symbol.name].max < REAL_LIMIT
    }


def calibrated_ranges(
    graph: Graph, calibrated: Mapping[str, Range], config: QuantizationConfig, fixed: Mapping[str, Target]
) -> dict[str, Range]:
    """The range of every tensor, parameters included; QuantizationError naming those that were not calibrated, and an
    input that was calibrated beyond what is declared of it.

    A tensor that trained quantization fixes has the range of its form. Where others were not calibrated, theirs follow
    from these, from the integers of given inputs, and from those that were, by the records' bounds; where these know
    none it is what the quantizers tell apart that read the tensor. Of masked scores it is what softmaxes tell apart.
    What this gives may be given as `calibrated` again, and stays as it is.
    """
    _check_declared(calibrated, config)
    unread = [symbol for symbol in graph.inputs if not graph.consumers[symbol] and symbol not in graph.outputs]
    given = {symbol.name: Range(0.0, 0.0) for symbol in unread if fixed}
    given |= {name: _given_range(options) for name, options in config.inputs.items() if fixed}
    known = {**given, **calibrated} | {name: Range(*target.real_range) for name, target in fixed.items()}
    known |= fixed_state_ranges(graph, fixed)
    known |= proven_ranges(graph, known)
    symbols = tuple(dict.fromkeys((*graph.inputs, *graph.symbols)))
    for symbol in graph.operators if fixed else ():
        told = saturation_range(graph, symbol) if symbol.name not in known else None
        if told is not None:
            known[symbol.name] = Range(*told)
    missing = [s for s in symbols if graph.value(s) is None and s.name not in known]
    if missing:
        others = f", and {named([symbol.name for symbol in missing[1:]])}" if missing[1:] else ""
        raise QuantizationError(f"{missing[0].name} ({missing[0].op}) has no range; calibrate it first{others}")
    ranges = {symbol.name: _range(graph, symbol, known) for symbol in symbols}
    ranges |= masked_ranges(graph, ranges)
    ranges |= state_ranges(graph, ranges)
    return ranges


def _check_declared(calibrated: Mapping[str, Range], config: QuantizationConfig) -> None:
    """QuantizationError naming an input whose calibrated range leaves the one that is declared by a step or more."""
    for name, options in config.inputs.items():
        declared, found = _given_range(options), calibrated.get(name)
        if found is None:
            continue
        if found.lo <= declared.lo - options.scale or found.hi >= declared.hi + options.scale:
            lo, hi = options.limits
            raise QuantizationError(
                f"input {name} was calibrated on [{found.lo:.6g}, {found.hi:.6g}], but {given_integers(name)} declares "
                f"integers in [{lo}, {hi}], real values in [{declared.lo:.6g}, {declared.hi:.6g}]; declare all that "
                f"occur, or mend the data"
            )


def _given_range(options: InputConfig) -> Range:
    return Range(*Target(options.scale, *options.limits, zero_point=options.zero_point).real_range)


def _range(graph: Graph, symbol: Symbol, calibrated: Mapping[str, Range]) -> Range:
    """The calibrated range of a tensor; that of a parameter is what it holds."""
    value = graph.value(symbol)
    if value is not None:
        return Range(float(value.min()), float(value.max())) if value.size else Range(0.0, 0.0)
    found_range = calibrated[symbol.name]
    if not np.isfinite(found_range.magnitude):
        raise QuantizationError(f"{symbol.name} ({symbol.op}): the range {found_range} is not finite")
    return found_range


def never_negative_tensors(graph: Graph, ranges: Mapping[str, Range]) -> frozenset[str]:
    """The tensors proven to stay at or above zero, by the records' bounds over real intervals.

    Inputs are taken as calibrated, since their quantizer saturates there.
    """
    given = {symbol.name: ranges[symbol.name] for symbol in graph.inputs}
    known = _NEVER_NEGATIVE.get(graph)
    if known is None or known[0] != given:
        found = real_intervals(graph, given)
        known = given, frozenset(name for name, interval in found.items() if interval.min >= 0)
        _NEVER_NEGATIVE[graph] = known
    return known[1]


_NEVER_NEGATIVE: WeakKeyDictionary[Graph, tuple[dict[str, Range], frozenset[str]]] = WeakKeyDictionary()
"""What was proven last of a graph, and for which ranges of its inputs: plans that differ in bits ask the same."""


def _planned_ranges(facts: Facts) -> dict[str, Range]:
    """The ranges by which tensors are planned: calibrated, and with room where outputs have it."""
    ranges = calibrated_ranges(facts.graph, facts.calibrated, facts.config, facts.fixed)
    return ranges if facts.fixed else ranges | final_ranges(facts.graph, ranges, facts.config)


RANGES = FactPass("ranges", _planned_ranges, ("fixed",))


def _signs(facts: Facts) -> dict[str, bool]:
    never_negative = never_negative_tensors(facts.graph, facts.ranges)
    return {name: name in never_negative for name in facts.ranges}


NEVER_NEGATIVE = FactPass("never_negative", _signs, ("ranges",))
