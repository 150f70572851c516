"""Elementwise operators go before a join of phases, with parameters of every phase."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import op

from mrt.backend.operators.join_phases import JoinPhases
from mrt.backend.rewrites.phases_joined_last import PhasesJoinedLast
from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType

CLIP, CAST = op("clip", a_min=-90, a_max=90), op("Cast", dtype="int8")


def joined(builder: GraphBuilder, groups: int = 1) -> Symbol:
    """[2, 4, 5, 7] of phases of 2 x 3."""
    phases = builder.input("x", TensorType((2, 24, 3, 3), "int32"))
    return builder.apply(JoinPhases((2, 3), (1, 1), (5, 7), groups), [phases], "joined")


def check_same(before: Graph, after: Graph) -> None:
    feeds = {"x": np.random.default_rng(0).integers(-99, 100, (2, 24, 3, 3)).astype(np.int32)}
    for expected, found in zip(before.evaluate(feeds), after.evaluate(feeds), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("groups", [1, 2])
def test_parameters_of_channels_are_those_of_every_phase(groups: int) -> None:
    builder = GraphBuilder()
    shift = builder.parameter("shift", np.arange(4, dtype=np.int32).reshape(1, 4, 1, 1))
    one = builder.parameter("one", np.full((1, 1, 1, 1), 3, np.int32))
    table = builder.parameter("table", np.arange(-128, 128).astype(np.int8)[::-1].copy())
    value = builder.apply(op("broadcast_add"), [joined(builder, groups), shift])
    value = builder.apply(op("broadcast_sub"), [one, value])
    value = builder.apply(CAST, [builder.apply(CLIP, [value])])
    before = builder.graph([builder.apply(op("table_lookup", offset=128), [value, table], "y")])
    after = PhasesJoinedLast().run(before).graph
    steps = ["broadcast_add", "broadcast_sub", "clip", "Cast", "table_lookup"]
    assert [symbol.op for symbol in after.operators] == [*steps, "join_phases"]
    assert after.outputs[0].name == "y"
    check_same(before, after)


def test_what_is_wider_comes_after_the_join() -> None:
    builder = GraphBuilder()
    narrow = builder.apply(CAST, [joined(builder)])
    before = builder.graph([builder.apply(op("Cast", dtype="float32"), [narrow], "y")])
    result = PhasesJoinedLast().run(before)
    assert [symbol.op for symbol in result.graph.operators] == ["Cast", "join_phases", "Cast"]
    (refusal,) = result.refusals
    assert (refusal.symbol, refusal.reason) == ("y", "its results are wider than what is joined")
    check_same(before, result.graph)


def test_a_join_that_others_read_stays() -> None:
    builder = GraphBuilder()
    whole = joined(builder)
    before = builder.graph([builder.apply(CLIP, [whole], "y"), builder.apply(op("relu"), [whole], "z")])
    result = PhasesJoinedLast().run(before)
    assert result.graph is before
    assert {refusal.reason for refusal in result.refusals} == {"what is joined is read by others too"}


@pytest.mark.parametrize("shape", [(1, 1, 5, 7), (2, 1, 1, 1)])
def test_parameters_of_positions_and_samples_stay_behind(shape: tuple[int, ...]) -> None:
    builder = GraphBuilder()
    each = builder.parameter("each", np.arange(np.prod(shape), dtype=np.int32).reshape(shape))
    before = builder.graph([builder.apply(op("broadcast_add"), [joined(builder), each], "y")])
    (refusal,) = PhasesJoinedLast().run(before).refusals
    assert refusal.reason == f"each has shape {shape}; a parameter of (1, 4, 1, 1) is needed"
