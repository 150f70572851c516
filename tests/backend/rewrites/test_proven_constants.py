"""What bounds prove to be one value is not computed, and read as any other value."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import assert_same_values, op

from mrt.backend import TvmRunner
from mrt.backend.rewrites.proven_constants import ProvenConstants
from mrt.backend.rewrites.rewrite import Facts
from mrt.symbol import Graph, GraphBuilder, Interval, TensorType

CONVOLUTION = op("Convolution", kernel=(3, 3), pad=(1, 1), num_filter=32)
BATCH = 2


def residual(weight: int, bias: np.ndarray, table: int = 1, is_output: bool = False) -> Graph:
    """x + table(convolution(x)), requantized; is_output: whether what the table gives is an output, too."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((BATCH, 32, 8, 8), "int8"))
    parameters = [
        builder.parameter("w", np.full((32, 32, 3, 3), weight, np.int8)),
        builder.parameter("b", bias.astype(np.int32)),
    ]
    branch = builder.apply(CONVOLUTION, [x, *parameters], "sums")
    branch = builder.apply(op("clip", a_min=0, a_max=table - 1), [branch])
    branch = builder.apply(op("table_lookup"), [branch, builder.parameter("t", np.arange(7, 7 + table, dtype=np.int8))])
    sums = builder.apply(op("broadcast_add"), [x, branch])
    return builder.graph([builder.apply(op("relu"), [sums]), *[branch] * is_output])


@pytest.mark.parametrize(
    ("weight", "bias", "table", "left"),
    [
        (1, np.arange(32), 1, 0),
        (0, np.zeros(32), 3, 0),
        (0, np.arange(32), 40, 0),
        (1, np.zeros(32), 3, 1),
    ],
)
def test_a_branch_of_one_value_is_not_computed(weight: int, bias: np.ndarray, table: int, left: int) -> None:
    before = residual(weight, bias, table)
    after = ProvenConstants().run(before).graph
    assert sum(symbol.op == "Convolution" for symbol in after.operators) == left
    feeds = {"x": np.random.default_rng(0).integers(-128, 128, (BATCH, 32, 8, 8)).astype(np.int8)}
    expected = before.evaluate(feeds)
    assert_same_values(before, after.evaluate(feeds), expected)
    assert_same_values(before, TvmRunner().prepare(before)(feeds), expected)


def test_a_constant_has_one_element_where_it_does_not_vary() -> None:
    after = ProvenConstants().run(residual(0, np.arange(32), 40)).graph
    (tile,) = (symbol for symbol in after.operators if symbol.op == "tile")
    assert tile.inputs[0].shape == (1, 32, 1, 1)
    assert tile.shape == (BATCH, 32, 8, 8)


def test_outputs_are_computed() -> None:
    before = residual(0, np.arange(32), 40, is_output=True)
    after = ProvenConstants().run(before).graph
    assert after.outputs[1].op == "table_lookup"
    feeds = {"x": np.ones((BATCH, 32, 8, 8), np.int8)}
    assert_same_values(before, TvmRunner().prepare(before)(feeds), before.evaluate(feeds))


def test_what_inputs_are_known_to_be_proves_it_too() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2, 5), "int8"))
    shifted = builder.apply(op("right_shift"), [x, builder.parameter("s", np.array([[4]], np.int8))], "shifted")
    graph = builder.graph([builder.apply(op("broadcast_add"), [x, shifted])])
    for hi, count in ((7, 1), (8, 0)):
        facts = Facts(known={"x": Interval.of(0, hi, (2, 5))})
        after = ProvenConstants(facts).run(graph).graph
        assert sum(symbol.op == "tile" for symbol in after.operators) == count
