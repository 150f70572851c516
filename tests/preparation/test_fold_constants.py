"""What depends on parameters alone is evaluated; constants in a row become one."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.errors import DataError
from mrt.preparation.fold_constants import FoldConstants
from mrt.symbol import GraphBuilder, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastDiv, BroadcastMul
from mrt.symbol.operators.transform import Transpose


def test_evaluates_parameters(assert_same_outputs) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2, 3)))
    weight = builder.apply(Transpose(), [builder.parameter("w", np.arange(6, dtype=np.float32).reshape(3, 2))], "t")
    graph = builder.graph([builder.apply(BroadcastMul(), [x, weight], "y"), weight])
    result = FoldConstants()(graph)
    assert [s.op for s in result.operators] == ["broadcast_mul"]
    assert list(result.parameters) == ["t"] and result.outputs[1].is_variable
    assert_same_outputs(graph, result)


@pytest.mark.parametrize(("operator", "neutral"), [(BroadcastAdd(), 0.0), (BroadcastMul(), 1.0)])
def test_joins_a_row(operator, neutral: float, assert_same_outputs) -> None:
    builder = GraphBuilder()
    y = x = builder.input("x", TensorType((1, 3, 2, 2)))
    for value in (np.full((1, 1, 1, 1), 2.0), np.arange(1.0, 4).reshape(1, 3, 1, 1), np.full((1, 1, 1, 1), neutral)):
        y = builder.apply(operator, [y, builder.parameter("c", value.astype(np.float32))])
    graph = builder.graph([builder.apply(Relu(), [y])])
    result = FoldConstants()(graph)
    assert [s.op for s in result.operators] == [operator.op, "relu"]
    assert result.operators[0].inputs[0] is x
    assert_same_outputs(graph, result)


def test_a_row_of_sums_and_products_is_one_of_each(assert_same_outputs) -> None:
    builder, random = GraphBuilder(), np.random.default_rng(0)
    y = x = builder.input("x", TensorType((1, 3, 2, 2)))
    for operator in (BroadcastAdd(), BroadcastMul(), BroadcastAdd(), BroadcastMul(), BroadcastMul(), BroadcastAdd()):
        constant = random.normal(size=(1, 3, 1, 1)).astype(np.float32)
        y = builder.apply(operator, [y, builder.parameter("c", constant)])
    graph = builder.graph([builder.apply(Relu(), [y])])
    result = FoldConstants()(graph)
    assert [s.op for s in result.operators] == ["broadcast_mul", "broadcast_add", "relu"]
    assert result.operators[0].inputs[0] is x
    assert_same_outputs(graph, result)


def test_keeps_apart_what_others_read_or_what_would_grow(assert_same_outputs) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3, 2, 2)))
    c, rows = (builder.parameter("c", np.ones(s, np.float32) * 3) for s in ((1, 3, 1, 1), (1, 1, 2, 1)))
    shared = builder.apply(BroadcastAdd(), [x, c], "shared")
    grown = builder.apply(BroadcastAdd(), [builder.apply(BroadcastAdd(), [x, c], "inner"), rows], "grown")
    graph = builder.graph([builder.apply(BroadcastAdd(), [shared, c], "y"), builder.apply(Relu(), [shared]), grown])
    result = FoldConstants()(graph)
    assert result.count_operators() == graph.count_operators()
    assert_same_outputs(graph, result)


def test_neutral_constant_that_changes_the_shape_stays() -> None:
    builder = GraphBuilder()
    x, ones = builder.input("x", TensorType((1, 3))), builder.parameter("c", np.ones((4, 3), np.float32))
    graph = builder.graph([builder.apply(BroadcastMul(), [x, ones])])
    assert FoldConstants()(graph).outputs[0].shape == (4, 3)


def test_non_finite_result_is_an_error() -> None:
    builder = GraphBuilder()
    zero = builder.parameter("zero", np.zeros(2, np.float32))
    graph = builder.graph([builder.apply(BroadcastDiv(), [zero, zero], "ratio")])
    with pytest.raises(DataError, match=r"ratio \(broadcast_div\).*zero"):
        FoldConstants()(graph)


def test_overflow_of_the_joint_constant_stays_apart() -> None:
    builder = GraphBuilder()
    y = builder.input("x", TensorType((2,)))
    for value in (1e30, 1e30):
        y = builder.apply(BroadcastMul(), [y, builder.parameter("c", np.full((1,), value, np.float32))])
    assert FoldConstants()(builder.graph([y])).count_operators() == {"broadcast_mul": 2}
