"""Operators that arrange and choose: against NumPy, and as samples of a batch."""

from __future__ import annotations

import numpy as np
import pytest
from applied import infer, run

from mrt.errors import GraphError
from mrt.symbol import GraphBuilder, Interval, Operator, TensorType
from mrt.symbol.operators.arrangement import DepthToSpace, Repeat, SliceLike, SpaceToDepth, SwapAxis, Tile, UpSampling
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.selection import (
    ArgMax,
    ArgMin,
    BroadcastMaximum,
    ElemwiseMaximum,
    Embedding,
    MaximumScalar,
    Min,
    Where,
)
from mrt.symbol.operators.transform import Take
from mrt.symbol.rebatch import Rebatch

X = np.arange(2 * 8 * 4 * 6, dtype=np.float32).reshape(2, 8, 4, 6) % 17


def test_arrangements_equal_numpy() -> None:
    np.testing.assert_array_equal(run(SwapAxis(1, -1), X), np.swapaxes(X, 1, 3))
    np.testing.assert_array_equal(run(SliceLike(), X, X[:1, :3, :, :5]), X[:1, :3, :, :5])
    np.testing.assert_array_equal(run(SliceLike(axes=(-1,)), X, X[0, 0, :, :2]), X[..., :2])
    for reps in ((2,), (2, 1, 1, 1, 3), (), (1, 3, 1, 1)):
        np.testing.assert_array_equal(run(Tile(reps), X), np.tile(X, reps))
    for axis in (None, 0, -1):
        np.testing.assert_array_equal(run(Repeat(3, axis), X), np.repeat(X, 3, axis))
    np.testing.assert_array_equal(run(UpSampling(2), X), np.kron(X, np.ones((2, 2), np.float32)))
    np.testing.assert_array_equal(run(DepthToSpace(2), run(SpaceToDepth(2), X)), X)
    assert run(DepthToSpace(2), X)[1, 1, 2 * 3 + 1, 2 * 5] == X[1, 2 * 2 + 1, 3, 5]


def test_selections_equal_numpy() -> None:
    np.testing.assert_array_equal(run(Min(axis=(1, 3)), X), X.min(axis=(1, 3)))
    assert run(Min(), X).shape == run(ArgMax(), X).shape == (1,)
    for axis in (1, -1):
        np.testing.assert_array_equal(run(ArgMax(axis), X), X.argmax(axis))
        np.testing.assert_array_equal(run(ArgMin(axis, keepdims=True), X), X.argmin(axis, keepdims=True))
    assert run(ArgMax(1), X.astype(np.int8)).dtype == np.int32
    assert run(ArgMin(keepdims=True), X).shape == (1, 1, 1, 1)
    rows, condition = np.array([0.0, -0.5], np.float32), X % 3
    np.testing.assert_array_equal(run(Where(), rows, X, -X), np.stack([-X[0], X[1]]))
    np.testing.assert_array_equal(run(Where(), condition, X, X[:, :1]), np.where(condition != 0, X, X[:, :1]))
    table, indices = np.arange(15, dtype=np.float32).reshape(5, 3), np.array([[-2.0, 1.9], [4.0, 7.0]], np.float32)
    np.testing.assert_array_equal(run(Embedding(5, 3), indices, table), table[[[0, 1], [4, 4]]])


def test_integers_keep_their_dtype() -> None:
    small = (X - 8).astype(np.int8)
    for operator in (ElemwiseMaximum(), BroadcastMaximum()):
        assert run(operator, small, -small).dtype == np.int8
        with pytest.raises(GraphError, match="one dtype is needed: cast them"):
            infer(operator, TensorType((2,), "int8"), TensorType((2,), "int16"))
    assert run(MaximumScalar(-3), small).min() == -3
    for scalar in (0.5, 128.0):
        with pytest.raises(GraphError, match="an integer that the dtype holds"):
            infer(MaximumScalar(scalar), TensorType((2,), "int8"))


@pytest.mark.parametrize(
    ("operator", "shapes", "message"),
    [
        (SliceLike(), [(2, 3), (2, 4)], "no shorter"),
        (SliceLike(), [(2, 3), (2,)], "equal ranks"),
        (Tile((0,)), [(2, 3)], "at least 1"),
        (Repeat(0), [(2, 3)], "at least 1"),
        (UpSampling(2), [(2, 3, 4)], "rank 4"),
        (UpSampling(2, "bilinear"), [(1, 2, 3, 4)], "nearest is needed"),
        (DepthToSpace(2), [(1, 6, 2, 2)], "divides"),
        (SpaceToDepth(2), [(1, 6, 2, 3)], "divides"),
        (ElemwiseMaximum(), [(2, 3), (3,)], "broadcast_ operator"),
        (Embedding(5, 3), [(2,), (3, 5)], r"\(5, 3\) is needed"),
        (ArgMax(2), [(2, 3)], "outside"),
    ],
)
def test_what_does_not_fit_is_named(operator: Operator, shapes: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        infer(operator, *map(TensorType, shapes))


def test_bounds_of_known_conditions_and_indices_are_exact() -> None:
    condition = Interval(np.array([[0, 1, 0]]), np.array([[0, 5, 1]]), (1, 3))
    bounds = Where().bounds(condition, Interval.of(10, 20, (1, 3)), Interval.of(-2, -1, (1, 1)))
    np.testing.assert_array_equal(bounds.lo, [[-2, 10, -2]])
    np.testing.assert_array_equal(bounds.hi, [[-1, 20, 20]])
    table = Interval.constant(np.array([[1, 2], [5, -6], [9, 9]]))
    known = Embedding(3, 2).bounds(Interval.constant(np.array([1, 0])), table)
    np.testing.assert_array_equal(known.lo, [[5, -6], [1, 2]])
    free = Embedding(3, 2).bounds(Interval.of(0, 2, (4,)), table)
    assert (free.lo.tolist(), free.hi.tolist()) == ([[1, -6]], [[9, 9]])


APART: list[tuple[Operator, list[tuple[int, ...]]]] = [
    (SwapAxis(1, 2), [(1, 2, 3)]),
    (SliceLike(), [(1, 3), (1, 2)]),
    (SliceLike(axes=(1,)), [(1, 3), (5, 2)]),
    (Tile((1, 2)), [(1, 3)]),
    (Repeat(2, 1), [(1, 3)]),
    (UpSampling(2), [(1, 2, 3, 3)]),
    (ArgMax(1), [(1, 3)]),
    (Min((1,)), [(1, 3)]),
    (Embedding(5, 3), [(1, 4), (5, 3)]),
    (Where(), [(1, 3), (1, 3), (3,)]),
]
TOGETHER: list[tuple[Operator, list[tuple[int, ...]]]] = [
    (SwapAxis(0, 2), [(1, 2, 3)]),
    (SliceLike(), [(2, 3), (1, 2)]),
    (Tile((2, 1)), [(1, 3)]),
    (Tile((1, 1, 1)), [(1, 3)]),
    (Repeat(2), [(1, 3)]),
    (Repeat(2, 0), [(1, 3)]),
    (ArgMax(), [(1, 3)]),
    (ArgMin(0), [(1, 3)]),
    (Min(), [(1, 3)]),
]


@pytest.mark.parametrize(("operator", "shapes"), APART, ids=str)
def test_samples_stay_apart(operator: Operator, shapes: list[tuple[int, ...]]) -> None:
    assert operator.batch_obstacle(*map(TensorType, shapes)) == ""


@pytest.mark.parametrize(("operator", "shapes"), TOGETHER, ids=str)
def test_what_mixes_samples_says_so(operator: Operator, shapes: list[tuple[int, ...]]) -> None:
    assert operator.batch_obstacle(*map(TensorType, shapes))


def test_a_table_serves_every_batch() -> None:
    builder = GraphBuilder()
    indices = builder.input("i", TensorType((1, 3), "int32"))
    table = builder.parameter("table", np.arange(10, dtype=np.float32).reshape(5, 2))
    graph = builder.graph([builder.apply(Take(), [table, indices], "rows")])
    (result,) = Rebatch(4)(graph).evaluate({"i": np.arange(12, dtype=np.int32).reshape(4, 3) % 5})
    np.testing.assert_array_equal(result[..., 0] / 2, np.arange(12).reshape(4, 3) % 5)


def test_taking_from_the_batch_or_away_from_its_axis_is_refused() -> None:
    for axis, shape in ((0, (1, 5)), (1, (1, 5))):
        builder = GraphBuilder()
        x, indices = builder.input("x", TensorType(shape)), builder.input("i", TensorType((1, 3), "int32"))
        graph = builder.graph([builder.apply(Take(axis=axis), [x, indices], "rows")])
        with pytest.raises(GraphError, match=r"rows \(take\)"):
            Rebatch(4)(graph)
    builder = GraphBuilder()
    table = builder.parameter("table", np.ones((1, 5), np.float32))
    indices = builder.input("i", TensorType((1, 3), "int32"))
    graph = builder.graph([builder.apply(Take(axis=1), [table, indices], "rows")])
    with pytest.raises(GraphError, match="indices hold the batch, and slices are taken along axis 1"):
        Rebatch(4)(graph)


def test_deconvolution_has_no_bias_unless_it_says_so() -> None:
    assert Deconvolution(kernel=(2,), num_filter=1).no_bias
