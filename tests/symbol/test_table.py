"""Look-up tables: values, bounds by brute force, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from applied import draw, holds, infer, random_interval, run

from mrt.errors import GraphError
from mrt.symbol import Interval, TensorType
from mrt.symbol.operators.table import MAX_ENTRIES, TableLookup

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
@pytest.mark.parametrize("entries", ["int8", "uint8", "int16", "int32"])
def test_values(dtype: str, entries: str) -> None:
    table = RNG.integers(np.iinfo(entries).min, np.iinfo(entries).max, 200, endpoint=True).astype(entries)
    low = 0 if dtype == "uint8" else -100
    x = RNG.integers(low, low + 200, (3, 4, 5)).astype(dtype)
    found = run(TableLookup(offset=-low), x, table)
    assert found.dtype.name == entries
    assert found.tolist() == [[[int(table[int(v) - low]) for v in row] for row in plane] for plane in x]


def test_bounds_are_exact_for_each_interval() -> None:
    table = RNG.integers(-1000, 1000, 64)
    for _ in range(50):
        interval = random_interval(RNG, (2, 3, 4), -30, 33)
        bounds = TableLookup(offset=30).bounds(interval, Interval.constant(table))
        full = interval.expanded()
        for lo, hi, least, most in zip(
            full.lo.flat, full.hi.flat, bounds.expanded().lo.flat, bounds.expanded().hi.flat, strict=True
        ):
            assert (least, most) == (table[lo + 30 : hi + 31].min(), table[lo + 30 : hi + 31].max())
        assert holds(bounds, run(TableLookup(offset=30), draw(RNG, interval).astype(np.int32), table))


def test_bounds_of_many_intervals_are_sound() -> None:
    table = RNG.integers(-1000, 1000, 65536)
    lo = RNG.integers(0, 65000, (1, 9000))
    bounds = TableLookup().bounds(Interval(lo, lo + 7, (2, 9000)), Interval.constant(table))
    assert bounds.min <= table[lo.min() : lo.max() + 8].min() and bounds.shape == (2, 9000)


def test_bounds_of_a_table_that_is_no_constant() -> None:
    table = Interval.of(-3, 9, (16,))
    assert str(TableLookup().bounds(Interval.of(2, 5, (4,)), table)) == "[-3, 9]"


@pytest.mark.parametrize(("lo", "hi", "offset"), [(-1, 3, 0), (0, 16, 0), (0, 15, 1), (-9, -1, 8)])
def test_an_index_outside_is_refused(lo: int, hi: int, offset: int) -> None:
    operator, table = TableLookup(offset=offset), np.arange(16)
    with pytest.raises(GraphError, match=r"the table has 16 entries, 0 to 15"):
        operator.bounds(Interval.of(lo, hi, (2,)), Interval.constant(table))
    with pytest.raises(GraphError, match=r"the table has 16 entries, 0 to 15"):
        operator.evaluate(np.array([lo, hi]), table)


@pytest.mark.parametrize(
    ("data", "table", "found"),
    [
        (TensorType((2,), "float32"), TensorType((4,), "int8"), "needs integers"),
        (TensorType((2,), "int8"), TensorType((4,), "float32"), "needs integers"),
        (TensorType((2,), "int8"), TensorType((2, 2), "int8"), "rank 1"),
        (TensorType((2,), "int8"), TensorType((0,), "int8"), "rank 1 and 1 to 65536 entries"),
        (TensorType((2,), "int8"), TensorType((MAX_ENTRIES + 1,), "int8"), "rank 1 and 1 to 65536 entries"),
    ],
)
def test_types(data: TensorType, table: TensorType, found: str) -> None:
    with pytest.raises(GraphError, match=found):
        infer(TableLookup(), data, table)
    assert infer(TableLookup(), TensorType((2, 3), "uint8"), TensorType((9,), "int16")) == TensorType((2, 3), "int16")
