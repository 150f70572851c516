"""FullyConnected and batch_dot against Python integers, and inputs that reach their bounds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from applied import draw, holds, infer, random_interval, run

from mrt.errors import GraphError
from mrt.symbol import Interval, TensorType
from mrt.symbol.operators.linear import BatchDot, FullyConnected


@pytest.mark.parametrize("largest", [127, 2**15, 2**31 - 1])
@pytest.mark.parametrize("terms", [1, 255, 256, 1000])
def test_integers_are_exact(largest: int, terms: int) -> None:
    rng = np.random.default_rng(terms)
    x, weight = rng.integers(-largest, largest, (2, terms)), rng.integers(-largest, largest, (3, terms))
    x[0], weight[0] = largest, -largest
    result = FullyConnected(num_hidden=3, no_bias=True).evaluate(x.astype(np.int32), weight.astype(np.int32))
    expected = [[sum(int(a) * int(b) for a, b in zip(row, w, strict=True)) for w in weight] for row in x]
    np.testing.assert_array_equal(result.astype(object), np.array(expected, object))


@pytest.mark.parametrize("flatten", [True, False])
def test_bounds_are_attained_per_output_channel(flatten: bool) -> None:
    rng = np.random.default_rng(1)
    operator = FullyConnected(num_hidden=5, flatten=flatten)
    shape = (1, 3, 4) if flatten else (1, 1, 12)
    weight, bias = rng.integers(-128, 127, (5, 12)), rng.integers(-99, 99, 5)
    lo, hi = -rng.integers(0, 128, shape), rng.integers(0, 128, shape)
    bounds = operator.bounds(Interval(lo, hi, shape), Interval.constant(weight), Interval.constant(bias))
    assert bounds.hi.shape == bounds.shape == ((1, 5) if flatten else (1, 1, 5))
    for channel in range(5):
        signs = weight[channel].reshape(shape)
        highest = operator.evaluate(np.where(signs > 0, hi, lo), weight, bias).reshape(-1)[channel]
        lowest = operator.evaluate(np.where(signs > 0, lo, hi), weight, bias).reshape(-1)[channel]
        assert (lowest, highest) == (bounds.lo.reshape(-1)[channel], bounds.hi.reshape(-1)[channel])


def test_bounds_per_channel_survive_flattening() -> None:
    # Channel 0 is in [0, 1] and channel 1 in [0, 100]; the weight reads channel 0 only.
    x = Interval(np.zeros((1, 2, 1, 1), int), np.array([1, 100]).reshape(1, 2, 1, 1), (4, 2, 3, 3))
    weight = np.zeros((1, 18), int)
    weight[0, :9] = 1
    bounds = FullyConnected(num_hidden=1, no_bias=True).bounds(x, Interval.constant(weight))
    assert str(bounds) == "[0, 9]"
    assert bounds.shape == (4, 1)


def test_bounds_hold_exhaustively_on_a_small_domain() -> None:
    operator = FullyConnected(num_hidden=1, no_bias=True)
    for weight in itertools.product((-2, 0, 3), repeat=3):
        w = np.array([weight])
        bounds = operator.bounds(Interval.of(-1, 2, (1, 3)), Interval.constant(w))
        reached = [int(operator.evaluate(np.array([x]), w)[0, 0]) for x in itertools.product(range(-1, 3), repeat=3)]
        assert (bounds.min, bounds.max) == (min(reached), max(reached))


@pytest.mark.parametrize(("a", "b"), [*itertools.product([False, True], repeat=2)])
def test_batch_dot_is_exact_and_bounded(a: bool, b: bool) -> None:
    rng = np.random.default_rng(2)
    operator = BatchDot(transpose_a=a, transpose_b=b)
    left = (2, 5, 3) if a else (2, 3, 5)
    right = (2, 4, 5) if b else (2, 5, 4)
    for _ in range(50):
        x, y = random_interval(rng, left, -128, 127), random_interval(rng, right, -128, 127)
        lhs, rhs = draw(rng, x), draw(rng, y)
        result = run(operator, lhs.astype(np.int32), rhs.astype(np.int32))
        rows, columns = (lhs.swapaxes(1, 2) if a else lhs), (rhs if b else rhs.swapaxes(1, 2))
        for n, i, j in np.ndindex(2, 3, 4):
            assert result[n, i, j] == sum(int(p) * int(q) for p, q in zip(rows[n, i], columns[n, j], strict=True))
        assert holds(operator.bounds(x, y), result)


def test_batch_dot_bounds_of_a_constant_are_per_column() -> None:
    y = np.array([[[1, -10], [2, 0]]])
    bounds = BatchDot().bounds(Interval.of(0, 3, (1, 7, 2)), Interval.constant(y))
    np.testing.assert_array_equal(bounds.lo, [[[0, -30]]])
    np.testing.assert_array_equal(bounds.hi, [[[9, 0]]])


def test_partial_sums_are_intermediates() -> None:
    # 100 x - 100 y is in [-100, 100], but x is added first or y is.
    x, weight = Interval.of(1, 2, (1, 2)), Interval.constant(np.array([[100, -100]]))
    operator = FullyConnected(num_hidden=1, no_bias=True)
    assert str(operator.bounds(x, weight)) == "[-100, 100]"
    assert str(operator.intermediates(x, weight)[0]) == "[-200, 200]"
    assert str(BatchDot().intermediates(Interval.of(1, 2, (1, 1, 2)), Interval.of(-3, -1, (1, 2, 1)))[0]) == "[-12, 0]"


@pytest.mark.parametrize(
    ("operator", "shapes", "message"),
    [
        (FullyConnected(3, no_bias=True), [(1, 4), (3, 5)], r"\(3, 4\) is needed"),
        (FullyConnected(3), [(1, 4), (3, 4)], "bias is missing"),
        (FullyConnected(3, no_bias=True), [(4,), (3, 4)], "rank 2 or more"),
        (BatchDot(), [(1, 4), (4, 2)], "rank 3 or more"),
        (BatchDot(), [(1, 3, 4), (1, 5, 2)], "4 and 5 elements"),
        (BatchDot(), [(1, 3, 4), (2, 4, 2)], "equal leading axes"),
    ],
)
def test_inputs_that_do_not_fit_are_named(
    operator: FullyConnected | BatchDot, shapes: list[tuple[int, ...]], message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        infer(operator, *map(TensorType, shapes))
