"""Drops symbols that give their input unchanged."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mrt.symbol import Graph, GraphBuilder, RewritePass, Symbol
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.arrangement import DepthToSpace, Repeat, SliceLike, SpaceToDepth, SwapAxis, Tile, UpSampling
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.integer import Cast
from mrt.symbol.operators.normalization import Dropout, Identity
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.reduce import Max, Mean, Sum
from mrt.symbol.operators.scalar import DivScalar, MinusScalar, MulScalar, PlusScalar
from mrt.symbol.operators.selection import Min
from mrt.symbol.operators.transform import Concat, ExpandDims, Flatten, Reshape, Slice, SliceAxis, Squeeze, Transpose
from mrt.symbol.passes import without_operators

_MOVES = (Flatten, Reshape, Squeeze, ExpandDims, SliceAxis, SliceLike, Pad)
_COPIES = (Tile, Repeat, UpSampling, DepthToSpace, SpaceToDepth)
_SAME_WHERE_SHAPE_IS = (*_MOVES, *_COPIES, Sum, Mean, Max, Min)
"""Operators whose output holds the input's values in the input's order wherever its shape is the input's."""


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
    """

    ensures = (without_operators("no dropout or copy", Dropout.op, Identity.op),)

    def rewrite(
        self, graph: Graph, symbol: Symbol, inputs: tuple[Symbol, ...], builder: GraphBuilder
    ) -> Symbol | str | None:
        if symbol.type == inputs[0].type and _changes_nothing(symbol, inputs):
            return inputs[0]
        return None


def _changes_nothing(symbol: Symbol, inputs: tuple[Symbol, ...]) -> bool:
    operator = symbol.operator
    match operator:
        case Dropout() | Identity() | Cast():
            return True
        case Slice():
            return all(step is None or step > 0 for step in operator.step)
        case Transpose():
            order = operator.axes or tuple(reversed(range(symbol.type.rank)))
            long = [axis % symbol.type.rank for axis in order if inputs[0].shape[axis] != 1]
            return long == sorted(long)
        case SwapAxis():
            first, second = operator.axes(symbol.type.rank)
            return first == second
        case Concat() | AddN():
            return len(inputs) == 1
        case Pooling():
            return _window_is_one(operator, inputs[0])
        case PlusScalar() | MinusScalar():
            return operator.scalar == 0
        case MulScalar() | DivScalar():
            return operator.scalar == 1
        case Relu() | Clip():
            return _within(_range(inputs[0]), _range(symbol))
    return isinstance(operator, _SAME_WHERE_SHAPE_IS)


def _window_is_one(operator: Pooling, data: Symbol) -> bool:
    if operator.global_pool:
        return True
    return set(operator.kernel) <= {1} and set(operator.stride) <= {1} and not any(operator.pad)


def _range(symbol: Symbol) -> tuple[float, float]:
    """The range to which relu or clip limits its output; everything for other operators."""
    match symbol.operator:
        case Relu():
            return 0.0, math.inf
        case Clip(a_min=low, a_max=high):
            return low, high
    return -math.inf, math.inf


def _within(inner: tuple[float, float], outer: tuple[float, float]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]
