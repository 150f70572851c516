"""Sums are rounded before they are moved, with parameters as they are before the moves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from compiled import op
from layers import assert_same_within_bounds

from mrt.backend.rewrites.narrow_before_moving import NarrowBeforeMoving
from mrt.symbol import Graph, GraphBuilder, Operator, Symbol, TensorType
from mrt.symbol.operators.transform import ExpandDims, Reshape, SliceAxis, Transpose

SUMS = np.random.default_rng(0).integers(-9999, 10000, (2, 5, 12)).astype(np.int32)
HEADS = (Reshape((2, 5, 3, 4)), Transpose((0, 2, 1, 3)))
SHUFFLE = (Reshape((2, 5, 3, 4)), Transpose((0, 1, 3, 2)), Reshape((2, 5, 12)))


def rounded(builder: GraphBuilder, data: Symbol, factors: Sequence[int]) -> Symbol:
    """clip((data * factors) >> 7) as int8."""
    values = np.arange(1, 1 + np.prod(factors)).reshape(factors).astype(np.int32)
    shift = builder.parameter("by", np.full((1,) * data.type.rank, 7, np.int8))
    scaled = builder.apply(op("broadcast_mul"), [data, builder.parameter("factors", values)], "scaled")
    shifted = builder.apply(op("right_shift"), [scaled, shift], "shifted")
    clipped = builder.apply(op("clip", a_min=-127, a_max=127), [shifted], "clipped")
    return builder.apply(op("Cast", dtype="int8"), [clipped], "y")


def moved(builder: GraphBuilder, movers: Sequence[Operator]) -> Symbol:
    data = builder.apply(op("relu"), [builder.input("x", TensorType(SUMS.shape, "int32"))], "sums")
    for index, mover in enumerate(movers):
        data = builder.apply(mover, [data], f"moved{index}")
    return data


def ops(graph: Graph) -> list[str]:
    return [symbol.op for symbol in graph.operators]


ROUNDING = ["broadcast_mul", "right_shift", "clip", "Cast"]


@pytest.mark.parametrize(
    ("movers", "factors"),
    [
        ((ExpandDims(0),), (1, 1, 1, 1)),
        ((Reshape((10, 12)),), (1, 12)),
        (HEADS, (1, 1, 1, 1)),
        (HEADS, (1, 3, 1, 4)),
        (HEADS, (1, 3, 1, 1)),
        (HEADS, (1, 1, 5, 1)),
        (HEADS, (2, 1, 1, 1)),
        (SHUFFLE, (1, 1, 12)),
    ],
)
def test_the_rounding_goes_before_all_moves(movers: Sequence[Operator], factors: Sequence[int]) -> None:
    builder = GraphBuilder()
    before = builder.graph([rounded(builder, moved(builder, movers), factors)])
    after = NarrowBeforeMoving().run(before).graph
    assert ops(after) == ["relu", *ROUNDING, *(mover.op for mover in movers)]
    assert after.outputs[0].name == "y" and after.outputs[0].inputs[0].dtype == "int8"
    assert_same_within_bounds(before, after, SUMS)


def test_a_parameter_that_varies_along_several_axes_stays_behind() -> None:
    builder = GraphBuilder()
    before = builder.graph([rounded(builder, moved(builder, HEADS), (1, 3, 5, 1))])
    result = NarrowBeforeMoving().run(before)
    assert ops(result.graph) == ops(before)
    assert [(refusal.symbol, "several axes" in refusal.reason) for refusal in result.refusals] == [("scaled", True)]


@pytest.mark.parametrize("read", ["moved0", "moved1", "scaled", "clipped"])
def test_what_others_read_stays(read: str) -> None:
    """What is moved is moved for them as well; what is scaled would be moved at its full width."""
    builder = GraphBuilder()
    end = rounded(builder, moved(builder, HEADS), (1, 1, 1, 1))
    names = {symbol.name: symbol for symbol in builder.graph([end]).symbols}
    before = builder.graph([end, builder.apply(op("relu"), [names[read]], "other")])
    after = NarrowBeforeMoving().run(before).graph
    assert ops(after) == ops(before)


@pytest.mark.parametrize("mover", [SliceAxis(1, 0, 3), Transpose((0, 2, 1))])
def test_what_is_no_move_or_does_not_narrow_stays(mover: Operator) -> None:
    """A slice takes fewer elements than it is given; a sum of int32 is not smaller than what is moved."""
    builder = GraphBuilder()
    data = moved(builder, (mover,))
    one = builder.parameter("one", np.ones((1, 1, 1), np.int32))
    added = builder.apply(op("broadcast_add"), [data, one], "y")
    ends = rounded(builder, data, (1, 1, 1)) if isinstance(mover, SliceAxis) else added
    before = builder.graph([ends])
    assert ops(NarrowBeforeMoving().run(before).graph) == ops(before)
