"""Constants of kernels: those of small integers are made once, and none is taken for another."""

from __future__ import annotations

import math

import pytest

from mrt.backend.tir.expressions import SMALL, constant, dtype_of


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "float32"])
def test_constants_have_their_value_and_dtype(dtype: str) -> None:
    for value in (0, 1, 7, 127):
        for _ in range(2):
            found = constant(value, dtype)
            assert (found.value, dtype_of(found)) == (value, dtype)


def test_numbers_that_compare_equal_are_told_apart() -> None:
    assert constant(0, "float32").same_as(constant(0, "float32"))
    assert math.copysign(1.0, constant(-0.0, "float32").value) == -1.0
    assert math.copysign(1.0, constant(0.0, "float32").value) == 1.0
    assert dtype_of(constant(True, "bool")) == "bool"
    assert dtype_of(constant(1, "int32")) == "int32"
    assert constant(SMALL, "int32").value == SMALL
    assert constant(-1, "int32").value == -1
