"""Drops symbols that give their input unchanged."""

from __future__ import annotations

from dataclasses import dataclass

from mrt.symbol import Graph, GraphBuilder, RewritePass, Symbol
from mrt.symbol.operator import EVERYTHING
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.normalization import Dropout, Identity
from mrt.symbol.passes import without_operators


@dataclass(frozen=True)
class DropIdentities(RewritePass):
    """Replaces by its input every symbol that changes nothing, for the shapes that the graph has.

    1. Dropout and _copy; Cast to the dtype that the input has.
    2. Flatten, Reshape, squeeze, expand_dims, slice_axis, slice_like, Pad, tile, repeat, UpSampling, depth_to_space,
       space_to_depth, sum, mean, max, min whose output has the input's shape; slice likewise, unless a step turns an
       axis round; transpose that leaves the order of axes longer than 1, SwapAxis of one axis with itself.
    3. Concat and add_n of one input.
    4. Pooling whose window is one element and whose output has the input's shape.
    5. + 0, - 0, * 1 and / 1 with a scalar.
    6. relu and clip of a relu or clip that already keeps to the range.

    Rules 1 to 5 stand in the records, as `is_identity`.
    """

    ensures = (without_operators("no dropout or copy", Dropout, Identity),)

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if symbol.type == inputs[0].type and _changes_nothing(symbol, inputs):
            return inputs[0]
        return None


def _changes_nothing(symbol: Symbol, inputs: tuple[Symbol, ...]) -> bool:
    match symbol.operator:
        case Relu() | Clip() as outer:
            inner = inputs[0].operator
            return _within(inner.limits if isinstance(inner, (Relu, Clip)) else EVERYTHING, outer.limits)
    return symbol.operator.is_identity(*(source.type for source in inputs))


def _within(inner: tuple[float, float], outer: tuple[float, float]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]
