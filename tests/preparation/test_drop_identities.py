"""Symbols that change nothing go, those that only look so stay."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.preparation.drop_identities import DropIdentities
from mrt.symbol import GraphBuilder, Operator, TensorType
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.integer import Cast
from mrt.symbol.operators.normalization import Dropout, Identity
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.reduce import Sum
from mrt.symbol.operators.scalar import DivScalar, MinusScalar, MulScalar, PlusScalar, RMinusScalar
from mrt.symbol.operators.transform import Concat, Flatten, Reshape, Slice, SliceAxis, Squeeze, Transpose

SHAPE = (1, 3, 4, 4)

CHANGES_NOTHING = [
    (Dropout(), SHAPE),
    (Identity(), SHAPE),
    (Cast(dtype="float32"), SHAPE),
    (Flatten(), (1, 12)),
    (Reshape(shape=(0, -1, 4, 4)), SHAPE),
    (Transpose(axes=(0, 1, 2, 3)), SHAPE),
    (Transpose(axes=(1, 0, 2)), (1, 1, 5)),
    (Squeeze(), (2, 3)),
    (Slice(begin=(None, 0), end=(None, 3)), SHAPE),
    (SliceAxis(axis=1, begin=0, end=None), SHAPE),
    (Concat(dim=1), SHAPE),
    (AddN(), SHAPE),
    (Pad(pad_width=(0,) * 8), SHAPE),
    (Pooling(kernel=(1, 1), pool_type="avg"), SHAPE),
    (Pooling(global_pool=True, pool_type="max"), (1, 3, 1, 1)),
    (Sum(axis=(2, 3), keepdims=True), (1, 3, 1, 1)),
    (PlusScalar(scalar=0.0), SHAPE),
    (MinusScalar(scalar=0.0), SHAPE),
    (MulScalar(scalar=1.0), SHAPE),
    (DivScalar(scalar=1.0), SHAPE),
]

CHANGES_SOMETHING = [
    (Relu(), SHAPE),
    (Clip(a_min=-1.0, a_max=1.0), SHAPE),
    (Transpose(axes=(0, 1, 3, 2)), SHAPE),
    (Transpose(axes=(1, 0)), (4, 4)),
    (Transpose(), (4, 4)),
    (Slice(begin=(None, None), end=(None, None), step=(1, -1)), SHAPE),
    (Flatten(), SHAPE),
    (Pooling(kernel=(3, 3), pad=(1, 1), pool_type="max"), SHAPE),
    (Sum(axis=(2, 3), keepdims=True), SHAPE),
    (PlusScalar(scalar=1.0), SHAPE),
    (MulScalar(scalar=0.0), SHAPE),
    (RMinusScalar(scalar=0.0), SHAPE),
]


@pytest.mark.parametrize(("operator", "shape"), CHANGES_NOTHING, ids=lambda v: str(v))
def test_drops_what_changes_nothing(operator: Operator, shape: tuple[int, ...], assert_same_outputs) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType(shape))
    graph = builder.graph([builder.apply(Relu(), [builder.apply(operator, [x])], "end")])
    result = DropIdentities()(graph)
    assert [s.op for s in result.operators] == ["relu"]
    assert_same_outputs(graph, result)


@pytest.mark.parametrize(("operator", "shape"), CHANGES_SOMETHING, ids=lambda v: str(v))
def test_keeps_what_changes_something(operator: Operator, shape: tuple[int, ...]) -> None:
    builder = GraphBuilder()
    graph = builder.graph([builder.apply(operator, [builder.input("x", TensorType(shape))], "y")])
    assert DropIdentities()(graph).outputs == graph.outputs


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        (Relu(), Relu(), 1),
        (Clip(a_min=0.0, a_max=6.0), Relu(), 1),
        (Clip(a_min=0.0, a_max=6.0), Clip(a_min=-1.0, a_max=6.0), 1),
        (Relu(), Clip(a_min=0.0, a_max=6.0), 2),
        (Clip(a_min=-1.0, a_max=6.0), Relu(), 2),
    ],
)
def test_limits_within_limits(first: Operator, second: Operator, left: int, assert_same_outputs) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType(SHAPE))
    graph = builder.graph([builder.apply(second, [builder.apply(first, [x])])])
    result = DropIdentities()(graph)
    assert len(result.operators) == left
    assert_same_outputs(graph, result)


def test_output_becomes_the_input() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2, 2)))
    dropped = builder.apply(Dropout(), [x])
    result = DropIdentities()(builder.graph([dropped, builder.apply(Identity(), [dropped])]))
    assert result.outputs == (x, x)
    value = np.ones((2, 2), np.float32)
    assert [np.array_equal(y, value) for y in result.evaluate({"x": value})] == [True, True]
