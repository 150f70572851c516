"""Operands of products that are turned by a transpose: read as they lie, with what requantizes them in front."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import op

from mrt.backend.rewrites.turned_operands import TurnedOperands
from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType

TURN = op("transpose", axes=(0, 2, 3, 1))
MOVE = op("transpose", axes=(0, 2, 1, 3))
KEYS = (1, 5, 3, 4)
"""[1, tokens, heads, channels] of what TURN makes [1, heads, channels, tokens], MOVE [1, heads, tokens, channels]."""
CAST, CLIP = op("Cast", dtype="int8"), op("clip", a_min=-99, a_max=99)


def attention(*operators: object, keys: tuple[int, ...] = KEYS, leading: tuple[int, ...] = (1, 3)) -> Graph:
    """Two queries of each head times keys behind some operators; a pair is an operator and a number."""
    builder = GraphBuilder()
    held = builder.input("k", TensorType(keys, "int16"))
    for operator in operators:
        numbers: list[Symbol] = []
        if isinstance(operator, tuple):
            operator, number = operator
            numbers = [builder.parameter("number", np.full((1,) * held.type.rank, number, np.int8))]
        held = builder.apply(operator, [held, *numbers])
    queries = builder.input("q", TensorType((*leading, 2, held.shape[-2]), "int8"))
    return builder.graph([builder.apply(op("batch_dot"), [queries, held], "y")])


def operators_of(graph: Graph) -> list[object]:
    return [symbol.operator for symbol in graph.operators]


def check_same(before: Graph, after: Graph) -> None:
    random = np.random.default_rng(0)
    feeds = {s.name: random.integers(-128, 128, s.shape).astype(s.dtype) for s in before.inputs}
    np.testing.assert_array_equal(after.evaluate(feeds)[0], before.evaluate(feeds)[0])


@pytest.mark.parametrize(
    ("operators", "left"),
    [
        ([TURN], ["transpose"]),
        (
            [TURN, (op("broadcast_mul"), 7), (op("right_shift"), 3), CLIP, CAST],
            ["broadcast_mul", "right_shift", "clip", "Cast", "transpose"],
        ),
        ([CLIP, TURN, CAST], ["clip", "Cast", "transpose"]),
    ],
)
def test_a_transpose_of_keys_leaves_their_channels_last(operators: list[object], left: list[str]) -> None:
    before = attention(*operators)
    after = TurnedOperands().run(before).graph
    assert [symbol.op for symbol in after.operators] == [*left, "batch_dot"]
    (product,) = after.outputs
    assert product.name == "y" and product.operator.transpose_b
    assert product.inputs[1].shape == (1, 3, 5, 4)
    check_same(before, after)


def test_one_that_only_turns_is_gone_and_matrices_are_counted_as_before() -> None:
    turn = op("transpose", axes=(0, 2, 1))
    before = attention(turn, op("Reshape", shape=(1, 3, 4, 5)), CAST, keys=(3, 5, 4))
    after = TurnedOperands().run(before).graph
    assert [symbol.op for symbol in after.operators] == ["Cast", "Reshape", "batch_dot"]
    check_same(before, after)


def test_what_is_turned_twice_is_as_it_lies() -> None:
    builder = GraphBuilder()
    queries, keys = (builder.input(name, TensorType((3, 4, 4), "int8")) for name in "qk")
    turned = builder.apply(op("transpose", axes=(0, 2, 1)), [keys])
    before = builder.graph([builder.apply(op("batch_dot", transpose_b=True), [queries, turned], "y")])
    after = TurnedOperands().run(before).graph
    assert operators_of(after) == [op("batch_dot")]
    check_same(before, after)


def test_values_are_requantized_in_front_of_their_transpose() -> None:
    before = attention(MOVE, (op("right_shift"), 3), CAST)
    after = TurnedOperands().run(before).graph
    assert [symbol.op for symbol in after.operators] == ["right_shift", "Cast", "transpose", "batch_dot"]
    assert not after.outputs[0].operator.transpose_b
    check_same(before, after)


@pytest.mark.parametrize(
    "operators",
    [
        [MOVE],
        [TURN, op("Reshape", shape=(1, 3, 5, 4))],  # rows are no rows behind it
        [TURN, op("relu")],
        [],
    ],
)
def test_others_stay(operators: list[object]) -> None:
    before = attention(*operators, keys=KEYS if operators else (1, 3, 4, 5))
    assert operators_of(TurnedOperands().run(before).graph) == operators_of(before)


def test_a_transpose_that_others_read_stays() -> None:
    before = attention(TURN)
    turned = before.outputs[0].inputs[1]
    read = Graph(before.inputs, (*before.outputs, turned), before.parameters)
    assert operators_of(TurnedOperands().run(read).graph) == operators_of(read)
