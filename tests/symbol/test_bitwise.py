"""Logic on bits against Python integers, and bounds that are exactly what pairs of integers reach."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from applied import draw, holds, infer, random_interval, run

from mrt.errors import GraphError
from mrt.symbol import Interval, TensorType
from mrt.symbol.operators.bitwise import BitwiseAnd

EDGES = [-(2**31), -(2**31) + 1, -256, -255, -6, -1, 0, 1, 7, 255, 2**30, 2**31 - 1]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "bool"])
def test_the_bits_of_both(dtype: str) -> None:
    limits = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    values = sorted({min(max(value, limits[0]), limits[1]) for value in (*EDGES, *limits)})
    lhs, rhs = np.array(values, dtype)[:, None], np.array(values, dtype)
    assert run(BitwiseAnd(), lhs, rhs).tolist() == [[a & b for b in values] for a in values]


def test_bounds_are_exact() -> None:
    """Of every pair of intervals within [-9, 8], all at once."""
    ends = [(lo, hi) for lo in range(-9, 9) for hi in range(lo, 9)]
    pairs = list(itertools.product(ends, repeat=2))
    (a, b), (c, d) = np.array(pairs).transpose(1, 2, 0)
    bounds = BitwiseAnd().bounds(Interval(a, b, a.shape), Interval(c, d, c.shape))
    numbers = np.arange(-9, 9)
    table = numbers[:, None] & numbers
    for ((lo, hi), (least, most)), low, high in zip(pairs, bounds.lo.tolist(), bounds.hi.tolist(), strict=True):
        reached = table[lo + 9 : hi + 10, least + 9 : most + 10]
        assert (low, high) == (reached.min(), reached.max())


@pytest.mark.parametrize("reach", [100, 2**31 - 1, 2**62])
def test_bounds_broadcast(reach: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        lhs, rhs = random_interval(rng, (2, 3, 4), -reach, reach), random_interval(rng, (3, 1), -reach, reach)
        assert holds(BitwiseAnd().bounds(lhs, rhs), BitwiseAnd().evaluate(draw(rng, lhs), draw(rng, rhs)))


def test_bounds_beyond_64_bits_are_held() -> None:
    """Such as those of a sum of numbers of 64 bits, of which a tensor holds 64."""
    huge = Interval.of(-(2**70), 2**70, (1,))
    bounds = BitwiseAnd().bounds(huge, Interval.of(3, 5, (1,)))
    assert (bounds.min, bounds.max) == (0, 5)


def test_floats_have_no_bits() -> None:
    with pytest.raises(GraphError, match="no float form"):
        infer(BitwiseAnd(), TensorType((3,), "int32"), TensorType((3,)))
