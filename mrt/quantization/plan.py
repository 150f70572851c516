"""The scale plan: for every edge of the prepared float graph, the integer form that its consumer wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mrt.calibration import Threshold
from mrt.errors import QuantizationError
from mrt.quantization.expansion import Demand, expansion_of
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.quantizer import Target, affine_target, symmetric_target
from mrt.symbol import Array, Graph, Interval, Symbol

REAL_LIMIT = 1e30
UNLIMITED = 2**30
"""The reach of a target that tells the scale only."""


@dataclass(frozen=True)
class ScalePlan:
    """What the expansions ask: targets of edges, of outputs, and of what an accumulator meets next.

    graph: the prepared float graph. own: the quantizer of every tensor that has a threshold. common: the scale to
    which an operator with COMMON inputs brings them. meets: the target that a tensor's wide form meets first, at the
    tensor's own scale; None where nothing rescales it.
    """

    graph: Graph
    config: QuantizationConfig
    own: Mapping[str, Target]
    common: Mapping[str, float]
    meets: Mapping[str, Target | None]
    magnitudes: Mapping[str, float]
    never_negative: frozenset[str]

    def edge(self, consumer: Symbol, index: int) -> Target | None:
        """The form in which `consumer` wants input `index`; None for any form."""
        demand = expansion_of(consumer).demands(consumer, self.graph)[index]
        source = consumer.inputs[index]
        if demand is Demand.WIDE:
            return None
        if demand is Demand.NARROW:
            return self.own[source.name]
        if demand is Demand.OUTPUT:
            return self.own[consumer.name]
        return self.common_target(consumer, source)

    def common_target(self, consumer: Symbol, source: Symbol) -> Target:
        """`source` at the common scale of `consumer`.

        Where that is the scale of what reads the result next, without guard bits, the result's range and zero point
        are taken too, if all its readers saturate it there; else the zero point is 0 and `source` saturates where its
        own quantizer would.
        """
        scale = self.common[consumer.name]
        meets = self.meets[consumer.name] or self.own[consumer.name]
        if expansion_of(consumer).guard_bits == 0 and not meets.pinned and meets.hi < UNLIMITED:
            return replace(meets, pinned=True)
        top = max(int(np.rint(self.magnitudes[source.name] / scale)), 1)
        top = min(top, UNLIMITED)
        return Target(scale, 0 if source.name in self.never_negative else -top, top, pinned=True)

    def bias_after(self, symbol: Symbol) -> Array | None:
        """The constant that the only consumer of `symbol` adds to it, float; None where there is none."""
        consumers = self.graph.consumers[symbol]
        if len(consumers) != 1 or symbol in self.graph.outputs or not expansion_of(consumers[0]).adds_constant:
            return None
        return next((v for s in consumers[0].inputs if (v := self.graph.value(s)) is not None), None)

    def output(self, symbol: Symbol) -> Target:
        """The form of a graph output: one scale, `output.bits` wide."""
        return symmetric_target(self.magnitudes[symbol.name], self.config.output.bits, signed=True)


def observed_tensors(graph: Graph) -> tuple[str, ...]:
    """The tensors whose thresholds the plan needs: all but parameters and those that only pass values on."""
    return tuple(s.name for s in (*graph.inputs, *graph.symbols) if graph.value(s) is None)


def make_plan(graph: Graph, thresholds: Mapping[str, Threshold], config: QuantizationConfig) -> ScalePlan:
    """The plan for a prepared graph; QuantizationError naming a tensor whose threshold is missing."""
    config.check_against(graph)
    magnitudes = {symbol.name: _magnitude(graph, symbol, thresholds) for symbol in (*graph.inputs, *graph.symbols)}
    never_negative = _never_negative(graph, thresholds)
    own = {
        symbol.name: _own_target(
            symbol,
            None if graph.value(symbol) is not None else thresholds[symbol.name],
            magnitudes,
            never_negative,
            config,
        )
        for symbol in (*graph.inputs, *graph.symbols)
    }
    draft = ScalePlan(graph, config, own, {}, {}, magnitudes, never_negative)
    common, meets = _look_ahead(draft)
    return ScalePlan(graph, config, own, common, meets, magnitudes, never_negative)


def _own_target(
    symbol: Symbol,
    threshold: Threshold | None,
    magnitudes: Mapping[str, float],
    never_negative: frozenset[str],
    config: QuantizationConfig,
) -> Target:
    if symbol.name in config.inputs and symbol.is_variable:
        given = config.inputs[symbol.name]
        return Target(given.scale, *given.limits, pinned=True, zero_point=given.zero_point)
    if symbol.is_variable and symbol.type.is_integer and threshold is not None:
        raise QuantizationError(f"input {symbol.name} is {symbol.type}; say what its integers are: quantize.inputs")
    options = config.activation_of(symbol.name)
    if options.quantizer == "affine" and threshold is not None:
        lo = max(threshold.lo, 0.0) if symbol.name in never_negative else threshold.lo
        return affine_target(lo, threshold.hi, options.bits, options.is_signed)
    return symmetric_target(magnitudes[symbol.name], options.bits, signed=symbol.name not in never_negative)


def _look_ahead(draft: ScalePlan) -> tuple[dict[str, float], dict[str, Target | None]]:
    """Walks from the outputs to the inputs: what each tensor's wide form meets, and each common scale."""
    graph = draft.graph
    common: dict[str, float] = {}
    meets: dict[str, Target | None] = {}
    plan = ScalePlan(graph, draft.config, draft.own, common, meets, draft.magnitudes, draft.never_negative)
    outputs = set(graph.outputs)
    for symbol in reversed((*graph.inputs, *graph.symbols)):
        candidates = [plan.output(symbol)] if symbol in outputs else []
        for consumer in dict.fromkeys(graph.consumers[symbol]):
            for index, source in enumerate(consumer.inputs):
                if source is not symbol:
                    continue
                target = plan.edge(consumer, index)
                if target is None:
                    target = _through(plan, consumer)
                if target is not None:
                    candidates.append(target)
        found = min(candidates, key=lambda t: t.scale, default=None)
        meets[symbol.name] = found if found is None or len(set(candidates)) == 1 else _unlimited(found)
        if not symbol.is_variable:
            found = found or draft.own[symbol.name]
            guard = 0 if found.pinned else expansion_of(symbol).guard_bits
            common[symbol.name] = found.scale * 2.0**-guard
    return common, meets


def _through(plan: ScalePlan, carrier: Symbol) -> Target | None:
    """What a wide tensor meets behind an operator that passes it on, in the tensor's own scale.

    Behind one that changes values, such as the addition of a bias, the range is another.
    """
    target = plan.meets[carrier.name]
    gain = expansion_of(carrier).gain(carrier, plan.graph)
    if target is None or gain == 0:
        return None
    found = replace(target, scale=target.scale / gain)
    return found if carrier.operator.keeps_scale else _unlimited(found)


def _unlimited(target: Target) -> Target:
    return replace(target, lo=-UNLIMITED, hi=UNLIMITED)


def _magnitude(graph: Graph, symbol: Symbol, thresholds: Mapping[str, Threshold]) -> float:
    value = graph.value(symbol)
    if value is not None:
        return float(np.abs(value).max()) if value.size else 0.0
    try:
        threshold = thresholds[symbol.name]
    except KeyError:
        raise QuantizationError(f"{symbol.name} ({symbol.op}) has no threshold; calibrate it first") from None
    magnitude = max(abs(threshold.lo), abs(threshold.hi))
    if not np.isfinite(magnitude):
        raise QuantizationError(f"{symbol.name} ({symbol.op}): the threshold {threshold} is not finite")
    return magnitude


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
