"""Operators that move values against NumPy, and what keeps samples from staying apart."""

from __future__ import annotations

import numpy as np
import pytest
from applied import infer, run
from hypothesis import given, settings
from hypothesis import strategies as st

from mrt.errors import GraphError
from mrt.symbol import Interval, Operator, TensorType
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.normalization import BatchNorm, LayerNorm, LogSoftmax, Softmax
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.reduce import Max, Mean, Sum
from mrt.symbol.operators.transform import (
    Concat,
    ExpandDims,
    Flatten,
    Reshape,
    Slice,
    SliceAxis,
    Squeeze,
    Take,
    Transpose,
)

X = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)


@st.composite
def slices(draw: st.DrawFn) -> tuple[Slice, tuple[slice, ...]]:
    """A slice operator for X with what it is in Python."""
    count = draw(st.integers(1, 4))
    ends = st.one_of(st.none(), st.integers(-7, 7))
    steps = st.one_of(st.none(), st.sampled_from([-3, -2, -1, 1, 2, 3]))
    begin, end = (draw(st.lists(ends, min_size=count, max_size=count)) for _ in range(2))
    step = draw(st.lists(steps, min_size=count, max_size=count))
    return Slice(tuple(begin), tuple(end), tuple(step)), tuple(map(slice, begin, end, step))


@given(slices())
@settings(max_examples=150, deadline=None)
def test_slices_follow_python(case: tuple[Slice, tuple[slice, ...]]) -> None:
    operator, expected = case
    if X[expected].size:
        np.testing.assert_array_equal(run(operator, X), X[expected])
    else:
        with pytest.raises(GraphError, match="is empty"):
            run(operator, X)


@given(st.integers(-4, 3), st.integers(-6, 6), st.one_of(st.none(), st.integers(-6, 6)))
@settings(max_examples=100, deadline=None)
def test_slice_axis_follows_python(axis: int, begin: int, end: int | None) -> None:
    at = [slice(None)] * 4
    at[axis] = slice(begin, end)
    if X[tuple(at)].size:
        np.testing.assert_array_equal(run(SliceAxis(axis, begin, end), X), X[tuple(at)])


@pytest.mark.parametrize(
    ("shape", "reverse", "expected"),
    [
        ((0, -1), False, (2, 60)),
        ((-1, 60), False, (2, 60)),
        ((0, 0, 20), False, (2, 3, 20)),
        ((-2,), False, (2, 3, 4, 5)),
        ((0, -2, 1), False, (2, 3, 4, 5, 1)),
        ((-3, -3), False, (6, 20)),
        ((0, -4, 3, -1, -2), False, (2, 3, 1, 4, 5)),
        ((-4, -1, 2, -2), False, (1, 2, 3, 4, 5)),
        ((0, -1, 10), True, (3, 4, 10)),
        ((8, -1, 0), True, (8, 3, 5)),
        ((120,), False, (120,)),
    ],
)
def test_reshape_codes(shape: tuple[int, ...], reverse: bool, expected: tuple[int, ...]) -> None:
    np.testing.assert_array_equal(run(Reshape(shape, reverse), X), X.reshape(expected))


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ((7, -1), "nothing fits -1"),
        ((-1, -1), "-1 stands twice"),
        ((2, 3), "it holds 6 elements"),
        ((0, 0, 0, 0, 0), "more axes"),
        ((-5,), "-5 is no code"),
        ((-4, 2), "two lengths"),
        ((-4, 3, 3, -2), "does not split into 3 and 3"),
    ],
)
def test_reshapes_that_do_not_fit_say_why(shape: tuple[int, ...], why: str) -> None:
    with pytest.raises(GraphError, match=why):
        infer(Reshape(shape), TensorType(X.shape))


@pytest.mark.parametrize(("mode", "expected"), [("clip", [0, 0, 4, 4]), ("wrap", [3, 0, 4, 0])])
def test_take_outside(mode: str, expected: list[int]) -> None:
    result = run(Take(axis=-1, mode=mode), X, np.array([-2, 0, 4, 5], np.int32))
    np.testing.assert_array_equal(result, X[..., expected])


def test_take_replaces_its_axis_by_those_of_the_indices() -> None:
    indices = np.array([[0.0, 2.0], [1.0, 1.0]], np.float32)
    np.testing.assert_array_equal(run(Take(axis=1), X, indices), np.take(X, indices.astype(int), axis=1))
    with pytest.raises(GraphError, match="outside"):
        run(Take(axis=1, mode="raise"), X, np.array([3]))


def test_one_place_of_a_vector_is_bounded() -> None:
    for place in (Interval.of(0, 4, ()), Interval.of(3, 3, ())):
        bounds = Take().bounds(Interval.of(-2, 9, (5,)), place)
        assert (bounds.shape, bounds.min, bounds.max) == ((), -2, 9)


def test_full_reductions_leave_one_axis() -> None:
    assert run(Sum(), X).shape == run(Mean(), X).shape == run(Max(axis=()), X).shape == (1,)
    assert run(Max(keepdims=True), X).shape == (1, 1, 1, 1)
    np.testing.assert_array_equal(run(Sum(axis=(1, -1), exclude=True), X), X.sum(axis=(0, 2)))
    with pytest.raises(GraphError, match="each axis may stand once"):
        infer(Sum(axis=(1, -3)), TensorType(X.shape))


def test_axes_outside_are_errors() -> None:
    for operator in (
        Transpose((0, 1, 2)),
        Transpose((0, 1, 2, 2)),
        ExpandDims(5),
        Squeeze((1,)),
        Concat(dim=4),
        Softmax(9),
        LogSoftmax(-5),
    ):
        with pytest.raises(GraphError):
            infer(operator, TensorType(X.shape))


APART: list[tuple[Operator, list[tuple[int, ...]]]] = [
    (Concat(dim=1), [(1, 2), (1, 3)]),
    (Softmax(), [(1, 2)]),
    (LogSoftmax(), [(1, 2)]),
    (Flatten(), [(1, 2, 3)]),
    (Reshape((0, -1)), [(1, 2, 3)]),
    (Reshape((-1, 6)), [(1, 2, 3)]),
    (Reshape((-2,)), [(1, 2, 3)]),
    (Reshape((0, -3)), [(1, 2, 3)]),
    (Reshape((-1, 3), reverse=True), [(1, 3)]),
    (Transpose((0, 2, 1)), [(1, 2, 3)]),
    (ExpandDims(1), [(1, 2)]),
    (Squeeze((1,)), [(1, 1, 2)]),
    (Slice((None, 1), (None, 2)), [(1, 3)]),
    (SliceAxis(1, 0, 2), [(1, 3)]),
    (Pad((0, 0, 1, 1)), [(1, 3)]),
    (Sum((1,)), [(1, 3)]),
    (Sum((0,), exclude=True), [(1, 3)]),
    (BatchNorm(), [(1, 3), (3,), (3,), (3,), (3,)]),
    (LayerNorm(), [(1, 3), (3,), (3,)]),
    (Take(axis=1), [(1, 3), (2,)]),
    (FullyConnected(2, no_bias=True), [(1, 3), (2, 3)]),
    (Convolution((1,), 2, no_bias=True), [(1, 3, 4), (2, 3, 1)]),
    (BroadcastAdd(), [(1, 3), (3,)]),
]
TOGETHER: list[tuple[Operator, list[tuple[int, ...]]]] = [
    (Concat(dim=0), [(1, 2), (1, 2)]),
    (Concat(dim=-2), [(1, 2), (1, 2)]),
    (Softmax(axis=0), [(1, 2)]),
    (LogSoftmax(axis=0), [(1, 2)]),
    (Softmax(axis=-2), [(1, 2)]),
    (Reshape((1, -1)), [(1, 2, 3)]),
    (Reshape((-1,)), [(1, 2, 3)]),
    (Reshape((2, 3)), [(1, 2, 3)]),
    (Reshape((-3, -2)), [(1, 2, 3)]),
    (Reshape((2, -1)), [(2, 2, 3)]),
    (Transpose(), [(1, 2, 3)]),
    (Transpose((1, 0, 2)), [(1, 2, 3)]),
    (ExpandDims(0), [(1, 2)]),
    (ExpandDims(-3), [(1, 2)]),
    (Squeeze(), [(1, 2)]),
    (Squeeze((0,)), [(1, 2)]),
    (Slice((0,), (1,)), [(1, 2)]),
    (Slice((None,), (None,), (-1,)), [(2, 2)]),
    (SliceAxis(0, 0, 1), [(1, 2)]),
    (SliceAxis(-2, -1, None), [(1, 2)]),
    (Pad((0, 1, 0, 0)), [(1, 2)]),
    (Sum(), [(1, 2)]),
    (Mean((-2,)), [(1, 2)]),
    (Max((1,), exclude=True), [(1, 2)]),
    (BatchNorm(axis=0), [(3, 2), (3,), (3,), (3,), (3,)]),
    (LayerNorm(axis=0), [(3, 2), (3,), (3,)]),
    (Take(), [(3, 2), (2,)]),
    (FullyConnected(2, no_bias=True, flatten=False), [(3,), (2, 3)]),
]


@pytest.mark.parametrize(("operator", "shapes"), APART, ids=str)
def test_samples_that_stay_apart(operator: Operator, shapes: list[tuple[int, ...]]) -> None:
    assert operator.batch_obstacle(*map(TensorType, shapes)) == ""


@pytest.mark.parametrize(("operator", "shapes"), TOGETHER, ids=str)
def test_samples_that_do_not_stay_apart_have_a_reason(operator: Operator, shapes: list[tuple[int, ...]]) -> None:
    assert operator.batch_obstacle(*map(TensorType, shapes))


def test_a_reshape_names_its_shape() -> None:
    assert Reshape((98, 40)).batch_obstacle(TensorType((1, 98, 40))) == "shape (98, 40) does not keep axis 0"


@given(
    st.lists(st.sampled_from([0, -1, -2, -3, 1, 2, 3, 6]), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from([(1, 2, 3), (2, 3), (1, 1, 6), (3, 2, 1, 3)]),
)
@settings(max_examples=300, deadline=None)
def test_a_reshape_without_obstacle_keeps_samples_apart(
    codes: list[int], reverse: bool, shape: tuple[int, ...]
) -> None:
    operator = Reshape(tuple(codes), reverse)
    try:
        operator.infer(TensorType(shape))
    except GraphError:
        return
    if operator.batch_obstacle(TensorType(shape)):
        return
    batch = np.random.default_rng(0).standard_normal((5, *shape[1:]))
    together = operator.evaluate(batch)
    one = Reshape(tuple(codes), reverse)
    for sample in range(5):
        padded = np.repeat(batch[sample : sample + 1], shape[0], axis=0)
        np.testing.assert_array_equal(together[sample], one.evaluate(padded)[0])
