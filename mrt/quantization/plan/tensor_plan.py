"""The scale plan: for every edge of the prepared float graph, the integer form that its consumer wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from mrt.calibration import Range
from mrt.quantization.expansion import Demand, expansion_of, takes_groups
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.plan.own_quantizers import Asked
from mrt.quantization.plan.trained import ConstantGrid
from mrt.quantization.quantizer import SMALLEST_SCALE, Target, symmetric_target
from mrt.symbol import Array, Graph, Symbol

UNLIMITED = 2**30
"""The reach of a target that tells the scale only."""


@dataclass(frozen=True)
class Plan:
    """What the expansions ask: targets of edges, of outputs, and of what an accumulator meets next.

    graph: the prepared float graph. asked: the options of every tensor's quantizer, or the integers in which it is
    given. magnitudes: the largest magnitude of every tensor's range. own: the quantizer of every tensor that has a
    threshold, with one scale. grouped: those in channel groups, of the tensors that have them. narrow: what NARROW
    consumers get; it covers the part of the range that they tell apart. fixed: the forms that trained quantization
    gives; they are own, or grouped, as they are. constants: the integers of parameters that came quantized.
    reached: the part of the range that is told apart, for tensors that have no other consumers and of whose range some
    does not matter; their own quantizer is the narrow one. common: the scale to which an operator with COMMON inputs
    brings them. meets: the target that a tensor's wide form meets first, at the tensor's own scale; None where nothing
    rescales it. saturates: the real interval outside of which everything that reads a tensor's wide form saturates;
    infinite where something does not.
    """

    graph: Graph
    config: QuantizationConfig
    asked: Mapping[str, Asked]
    magnitudes: Mapping[str, float]
    never_negative: frozenset[str]
    own: Mapping[str, Target]
    grouped: Mapping[str, Target]
    narrow: Mapping[str, Target]
    fixed: Mapping[str, Target] = field(default_factory=dict)
    constants: Mapping[str, ConstantGrid] = field(default_factory=dict)
    reached: Mapping[str, Range] = field(default_factory=dict)
    common: Mapping[str, float] = field(default_factory=dict)
    meets: Mapping[str, Target | None] = field(default_factory=dict)
    saturates: Mapping[str, tuple[float, float]] = field(default_factory=dict)

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
