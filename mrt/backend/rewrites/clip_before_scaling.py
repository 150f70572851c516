"""Negative values are cut off before they are scaled, where they are cut off afterwards anyway."""

from __future__ import annotations

from dataclasses import dataclass

from mrt.backend.operators.int16 import MultiplyHighInt16, RequantizeInt16, RightShiftInt16
from mrt.backend.rewrites.rewrite import Rewrite
from mrt.backend.te.rounding import fits_by_addition
from mrt.symbol import Graph, GraphBuilder, Symbol
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.integer import RightShift
from mrt.symbol.passes import without_operators

SCALED_IN_32_BITS = without_operators(
    "values are scaled in 32 bits", MultiplyHighInt16, RequantizeInt16, RightShiftInt16
)


@dataclass(frozen=True)
class ClipBeforeScaling(Rewrite[Clip]):
    """Of Clip, RightShift and BroadcastMul, in integers: clip((x * f) >> s, lo, hi) with f >= 0 and lo >= 0 becomes
    clip((relu(x) * f) >> s, lo, hi).

    Both are the same integers, since scaling and rounding keep the order, and 0. What is never negative is rounded by
    an addition without a sign and has no lower limit; where the addition fits 32 bits with a sign nothing is gained.
    """

    about = (Clip,)
    requires = (SCALED_IN_32_BITS,)

    def rewrite(
        self, graph: Graph, symbol: Symbol[Clip], inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if not symbol.type.is_integer or symbol.operator.a_min < 0:
            return None
        (shifted,) = symbol.inputs
        if not isinstance(shifted.operator, RightShift) or not self._gains(graph, *shifted.inputs):
            return None
        steps = [shifted]
        if isinstance(shifted.inputs[0].operator, BroadcastMul):
            steps.append(shifted.inputs[0])
        if any(len(graph.consumers[step]) > 1 or step in graph.outputs for step in steps):
            return "what its limit cuts off is read by others too"
        if any(self.facts.bounds(graph)[step.inputs[1].name].min < 0 for step in steps):
            return "its factor may be negative"
        found = inputs[0] if len(steps) == 1 else inputs[0].inputs[0]
        value = builder.apply(Relu(), [found.inputs[0]], f"{symbol.name}_relu", symbol.origin)
        for step in reversed(steps):
            second = inputs[0].inputs[1] if step is shifted else found.inputs[1]
            value = builder.apply(step.operator, [value, second], f"{step.name}_relu", step.origin)
        return builder.apply(symbol.operator, [value], symbol.name, symbol.origin)

    def _gains(self, graph: Graph, data: Symbol, by: Symbol) -> bool:
        """Whether a constant shift of data that may be negative cannot be rounded by an addition."""
        shift, bounds = graph.value(by), self.facts.bounds(graph)[data.name]
        return shift is not None and bounds.min < 0 and not fits_by_addition(bounds, shift)
