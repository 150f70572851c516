"""What bounds take in memory."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.symbol import GraphBuilder, Interval, TensorType
from mrt.symbol.bounds import analyse_bounds
from mrt.symbol.operators._intervals import reshaped
from mrt.symbol.operators.activation import Clip
from mrt.symbol.operators.transform import Reshape


@pytest.mark.parametrize(("low", "high", "kept"), [(-8, 7, 1), (-500, 7, 64), (-500, 500, 64 * 80)])
def test_bounds_take_no_more_memory_than_what_varies_of_them(low: int, high: int, kept: int) -> None:
    """Of what a constant made different everywhere, and in its lower end by rows, a clip leaves less."""
    random = np.random.default_rng(0)
    lo = np.repeat(-random.integers(10, 400, (64, 1)), 80, axis=1)
    hi = random.integers(10, 400, (64, 80))
    builder = GraphBuilder()
    x = builder.input("x", TensorType((64, 80), "int32"))
    graph = builder.graph([builder.apply(Clip(a_min=low, a_max=high), [x], "y")])
    found = analyse_bounds(graph, {"x": Interval(lo, hi, x.shape)})["y"]
    assert found.lo.size == found.hi.size == kept
    np.testing.assert_array_equal(found.expanded().lo, np.maximum(lo, low).repeat(80 // lo.shape[1], axis=1))
    np.testing.assert_array_equal(found.expanded().hi, np.minimum(hi, high))


@pytest.mark.parametrize(("positions", "kept"), [(100, 64 * 100), (1_000, 1)])
def test_channels_are_repeated_at_positions_of_short_rows_only(positions: int, kept: int) -> None:
    """A normalisation of all of a sound joins channels and positions: bounds of each would fill the memory."""
    hi = np.arange(1, 65).reshape(1, 64, 1)
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 64, positions), "int32"))
    graph = builder.graph([builder.apply(Reshape(shape=(1, 1, 64 * positions)), [x], "y")])
    found = analyse_bounds(graph, {"x": Interval(-hi, hi, x.shape)})["y"]
    assert found.lo.size == found.hi.size == kept
    highest = np.repeat(hi.ravel(), positions) if kept > 1 else 64
    np.testing.assert_array_equal(found.hi.ravel(), highest)
    np.testing.assert_array_equal(found.lo.ravel(), -highest)


@pytest.mark.parametrize(
    ("before", "ends", "after", "kept"),
    [
        ((2, 60, 400, 400), (1, 60, 1, 1), (2, 3, 20, 400, 400), (1, 3, 20, 1, 1)),
        ((2, 3, 20, 400, 400), (1, 3, 20, 1, 1), (2, 60, 160000), (1, 60, 1)),
        ((1, 56, 56, 96), (1, 1, 1, 96), (8, 7, 8, 7, 96), (1, 1, 1, 1, 96)),
        ((6, 1, 5), (6, 1, 1), (6, 5, 1), (6, 1, 1)),
        ((4, 6), (4, 1), (8, 3), (8, 3)),
        ((12,), (12,), (1, 3, 1, 4), (1, 3, 1, 4)),
        ((1,), (1,), (), ()),
        ((2, 0, 3), (2, 1, 1), (3, 0), (3, 0)),
    ],
)
def test_a_reshape_keeps_one_bound_where_none_varies(
    before: tuple[int, ...], ends: tuple[int, ...], after: tuple[int, ...], kept: tuple[int, ...]
) -> None:
    hi = np.arange(1, 1 + np.prod(ends)).reshape(ends)
    found = reshaped(Interval(-hi, 2 * hi, before), after)
    assert found.lo.shape == found.hi.shape == kept
    if np.prod(before) < 10_000:
        np.testing.assert_array_equal(found.expanded().hi, np.broadcast_to(2 * hi, before).reshape(after))
    assert found.shape == after
    assert not found.lo.size or (found.min, found.max) == (-hi.max(), 2 * hi.max())


def test_a_reshape_joins_a_low_end_by_channels_and_a_high_one_by_rows() -> None:
    lo, hi = -np.arange(1, 4).reshape(3, 1), np.arange(1, 6).reshape(1, 5)
    found = reshaped(Interval(lo, hi, (3, 5)), (15,))
    np.testing.assert_array_equal(found.lo, np.repeat(lo.ravel(), 5))
    np.testing.assert_array_equal(found.hi, np.tile(hi.ravel(), 3))


def split(random: np.random.Generator, length: int) -> tuple[int, ...]:
    """A shape of so many elements."""
    shape: list[int] = []
    while length > 1:
        shape.append(int(random.choice([n for n in range(2, length + 1) if length % n == 0])))
        length //= shape[-1]
    for _ in range(random.integers(3)):
        shape.insert(int(random.integers(len(shape) + 1)), 1)
    return tuple(shape)


def test_bounds_of_any_reshape_are_those_of_the_elements() -> None:
    random = np.random.default_rng(0)
    for _ in range(2_000):
        length = int(random.choice([1, 6, 12, 24, 36, 60]))
        before, after = split(random, length), split(random, length)
        ends = [tuple(n if random.integers(2) else 1 for n in before) for _ in range(2)]
        lo, hi = random.integers(-9, 0, ends[0]), random.integers(0, 9, ends[1])
        found = reshaped(Interval(lo, hi, before), after).expanded()
        np.testing.assert_array_equal(found.lo, np.broadcast_to(lo, before).reshape(after))
        np.testing.assert_array_equal(found.hi, np.broadcast_to(hi, before).reshape(after))
