"""FullyConnected and batch_dot compiled, against the records."""

from __future__ import annotations

import pytest
from compiled import Bundle


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32"])
def test_fully_connected_agrees(dtype: str) -> None:
    bundle = Bundle()

    def values(*shape: int):
        return bundle.floats(*shape) if dtype == "float32" else bundle.integers(shape, dtype)

    for shape, hidden, flatten, no_bias in [
        ((1, 40), 10, True, False),
        ((5, 40), 16, True, True),
        ((17, 3, 2, 4), 33, True, False),
        ((2, 3, 24), 48, False, False),
        ((31, 24), 1, False, True),
        ((64, 9), 128, True, False),
    ]:
        x = bundle.input(values(*shape))
        depth = x.type.size // shape[0] if flatten else shape[-1]
        weight = values(hidden, depth) if dtype == "float32" else bundle.integers((hidden, depth))
        bias = bundle.floats(hidden) if dtype == "float32" else bundle.integers((hidden,), "int32", -(2**20), 2**20)
        given = [weight] if no_bias else [weight, bias]
        attributes = {"num_hidden": hidden, "flatten": flatten, "no_bias": no_bias}
        bundle.add("FullyConnected", x, *(bundle.parameter(value) for value in given), **attributes)
        bundle.add("FullyConnected", x, *(bundle.input(value) for value in given), **attributes)
    bundle.check(tolerance=1e-4)


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_batch_dot_agrees(dtype: str) -> None:
    bundle = Bundle()

    def values(*shape: int):
        return bundle.floats(*shape) if dtype == "float32" else bundle.integers(shape, dtype)

    for leading, n, k, m in [((2,), 5, 7, 9), ((2, 3), 16, 8, 32), ((1,), 31, 4, 3)]:
        for transpose_a in (False, True):
            for transpose_b in (False, True):
                lhs = values(*leading, *((k, n) if transpose_a else (n, k)))
                rhs = values(*leading, *((m, k) if transpose_b else (k, m)))
                bundle.add(
                    "batch_dot", bundle.input(lhs), bundle.input(rhs), transpose_a=transpose_a, transpose_b=transpose_b
                )
    bundle.check(tolerance=1e-4)
