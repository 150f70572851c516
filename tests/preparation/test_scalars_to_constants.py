"""Arithmetic with a constant ends as broadcast_add and broadcast_mul, the constant on the right."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.preparation.scalars_to_constants import ScalarsToConstants
from mrt.symbol import GraphBuilder, Operator, TensorType
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastDiv, BroadcastMul, BroadcastSub
from mrt.symbol.operators.elementwise import AddN, ElemwiseAdd, ElemwiseMul, ElemwiseSub
from mrt.symbol.operators.scalar import DivScalar, MinusScalar, MulScalar, PlusScalar, RDivScalar, RMinusScalar

X = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
C = np.array([[0.5], [-2.0], [3.0]], np.float32)

SCALARS = [
    (PlusScalar(scalar=2.5), X + 2.5),
    (MinusScalar(scalar=2.5), X - 2.5),
    (RMinusScalar(scalar=2.5), 2.5 - X),
    (MulScalar(scalar=-3.0), X * -3.0),
    (DivScalar(scalar=0.3), X / 0.3),
]
BINARY = [
    (BroadcastAdd(), lambda a, b: a + b),
    (BroadcastSub(), lambda a, b: a - b),
    (BroadcastMul(), lambda a, b: a * b),
    (BroadcastDiv(), lambda a, b: a / b),
]
ELEMWISE = [
    (ElemwiseAdd(), lambda a, b: a + b),
    (ElemwiseSub(), lambda a, b: a - b),
    (ElemwiseMul(), lambda a, b: a * b),
]


def _check(graph, expected: np.ndarray) -> None:
    result = ScalarsToConstants()(graph)
    assert {s.op for s in result.operators} <= {"broadcast_add", "broadcast_mul"}
    assert result.outputs[0].name == graph.outputs[0].name
    for symbol in result.operators:
        value = result.value(symbol.inputs[1])
        assert value is not None and value.ndim == symbol.type.rank and value.dtype == np.float32
    np.testing.assert_allclose(result.evaluate({"x": X})[0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("operator", "expected"), SCALARS, ids=lambda v: getattr(v, "op", ""))
def test_scalars(operator: Operator, expected: np.ndarray) -> None:
    builder = GraphBuilder()
    graph = builder.graph([builder.apply(operator, [builder.input("x", TensorType(X.shape))], "y")])
    _check(graph, expected)


@pytest.mark.parametrize("constant", [C, C[0], np.full((1,), 0.25, np.float32), np.float32(4).reshape(())])
@pytest.mark.parametrize(("operator", "meaning"), BINARY, ids=lambda v: getattr(v, "op", ""))
def test_constant_on_the_right(operator: Operator, meaning, constant: np.ndarray) -> None:
    builder = GraphBuilder()
    x, c = builder.input("x", TensorType(X.shape)), builder.parameter("c", constant)
    _check(builder.graph([builder.apply(operator, [x, c], "y")]), meaning(X, constant))


@pytest.mark.parametrize(("operator", "meaning"), BINARY[:3], ids=lambda v: getattr(v, "op", ""))
def test_constant_on_the_left(operator: Operator, meaning) -> None:
    builder = GraphBuilder()
    x, c = builder.input("x", TensorType(X.shape)), builder.parameter("c", C)
    _check(builder.graph([builder.apply(operator, [c, x], "y")]), meaning(C, X))


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize(("operator", "meaning"), ELEMWISE, ids=lambda v: getattr(v, "op", ""))
def test_elemwise(operator: Operator, meaning, left: bool) -> None:
    full = np.random.default_rng(2).normal(size=X.shape).astype(np.float32)
    builder = GraphBuilder()
    x, c = builder.input("x", TensorType(X.shape)), builder.parameter("c", full)
    a, b = (c, x) if left else (x, c)
    _check(builder.graph([builder.apply(operator, [a, b], "y")]), meaning(full, X) if left else meaning(X, full))


@pytest.mark.parametrize("tensors", [1, 2, 3])
def test_add_n(tensors: int) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType(X.shape))
    ones, twos = (builder.parameter("c", np.full(X.shape, v, np.float32)) for v in (1, 2))
    graph = builder.graph([builder.apply(AddN(), [ones, *[x] * tensors, twos], "y")])
    result = ScalarsToConstants()(graph)
    assert result.outputs[0].op == "broadcast_add"
    np.testing.assert_allclose(result.evaluate({"x": X})[0], tensors * X + 3, rtol=1e-6)


def test_constant_that_broadcasts_the_data_up() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((3,)))
    constant = np.full((2, 3), 5, np.float32)
    graph = builder.graph([builder.apply(BroadcastAdd(), [builder.parameter("c", constant), x], "y")])
    result = ScalarsToConstants()(graph)
    assert result.outputs[0].shape == (2, 3)
    value = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(result.evaluate({"x": value})[0], constant + value)


def test_uniform_constant_shrinks() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3, 4, 4)))
    constant = np.broadcast_to(np.arange(3, dtype=np.float32).reshape(1, 3, 1, 1), (1, 3, 4, 4)).copy()
    result = ScalarsToConstants()(builder.graph([builder.apply(ElemwiseMul(), [x, builder.parameter("c", constant)])]))
    assert result.outputs[0].inputs[1].shape == (1, 3, 1, 1)


@pytest.mark.parametrize("operator", [RDivScalar(scalar=1.0), DivScalar(scalar=0.0), MulScalar(scalar=float("inf"))])
def test_left_alone(operator: Operator) -> None:
    builder = GraphBuilder()
    graph = builder.graph([builder.apply(operator, [builder.input("x", TensorType(X.shape))], "y")])
    assert ScalarsToConstants()(graph).outputs == graph.outputs


def test_refusals_say_why() -> None:
    builder = GraphBuilder()
    x, zero = builder.input("x", TensorType((2,))), builder.parameter("zero", np.array([1, 0], np.float32))
    outputs = [builder.apply(BroadcastDiv(), [x, zero], "a"), builder.apply(BroadcastDiv(), [zero, x], "b")]
    reasons = {r.symbol: r.reason for r in ScalarsToConstants().run(builder.graph(outputs)).refusals}
    assert "holds 0" in reasons["a"] and "divides a constant" in reasons["b"]
