"""dot of matrices against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from applied import draw, holds, infer, random_interval, run

from mrt.errors import GraphError
from mrt.symbol import TensorType
from mrt.symbol.operators.dot import Dot


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_products_of_matrices(transpose_a: bool, transpose_b: bool, dtype: str) -> None:
    rng = np.random.default_rng(0)
    lhs = rng.integers(-128, 128, (7, 3) if transpose_a else (3, 7)).astype(dtype)
    rhs = rng.integers(-128, 128, (5, 7) if transpose_b else (7, 5)).astype(dtype)
    found = run(Dot(transpose_a=transpose_a, transpose_b=transpose_b), lhs, rhs)
    a, b = (lhs.T if transpose_a else lhs), (rhs.T if transpose_b else rhs)
    np.testing.assert_array_equal(found, a.astype(np.int64) @ b.astype(np.int64))


def test_bounds_hold() -> None:
    rng = np.random.default_rng(1)
    for transpose_a, transpose_b in ((False, False), (True, False), (False, True), (True, True)):
        operator = Dot(transpose_a=transpose_a, transpose_b=transpose_b)
        for _ in range(20):
            lhs = random_interval(rng, (4, 3) if transpose_a else (3, 4), -9, 9)
            rhs = random_interval(rng, (2, 4) if transpose_b else (4, 2), -9, 9)
            assert holds(operator.bounds(lhs, rhs), operator.evaluate(draw(rng, lhs), draw(rng, rhs)))


def test_other_ranks_and_lengths_are_refused() -> None:
    with pytest.raises(GraphError, match="rank 2 is needed"):
        infer(Dot(), TensorType((1, 2, 3)), TensorType((1, 3, 2)))
    with pytest.raises(GraphError, match="sums over 3 and 2 elements do not fit"):
        infer(Dot(), TensorType((2, 3)), TensorType((2, 3)))
