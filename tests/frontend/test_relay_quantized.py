"""Relay's integer operators, against Python integers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from relay_texts import function, one, tensor
from relay_windows import convolved

from mrt.frontend.relay import from_relay


def fixed_point(value: int, factor: float, away: bool = False) -> int:
    """value times factor as 31 bits of it and a shift, rounded half up or half away from zero, in Python integers."""
    fraction, exponent = math.frexp(factor)
    multiplier = math.floor(fraction * 2**31 + 0.5)
    total = 31 - exponent
    product = value * multiplier
    half = 1 << (total - 1)
    if away and product < 0:
        return -((-product + half) >> total)
    return (product + half) >> total


@given(
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=6),
    st.floats(2.0**-20, 1.0, width=32),
    st.sampled_from(["UPWARD", "TONEAREST"]),
    st.integers(-128, 127),
)
def test_requantization_is_exact(values: list[int], scale: float, rounding: str, zero: int) -> None:
    x = np.array(values, "int32")
    call = (
        f'qnn.requantize(%x, meta[relay.Constant][0], 0, 0.5f, {zero}, rounding="{rounding}", '
        'compute_dtype="int64", out_dtype="int8")'
    )
    found = one(call, x, constants=(np.float32(scale),))
    factor = float(np.float32(scale)) / 0.5
    expected = [min(max(fixed_point(v, factor, rounding == "TONEAREST") + zero, -128), 127) for v in values]
    assert found.tolist() == expected


def test_integer_products_take_zero_points_off() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.integers(-128, 128, (1, 3, 5, 5)).astype("int8"), rng.integers(-128, 128, (4, 3, 3, 3)).astype("int8")
    centered = np.pad(x.astype("i8") - 7, ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = convolved(centered, w.astype("i8") - 3, (1, 1), (0, 0, 0, 0))
    call = 'qnn.conv2d(%x, meta[relay.Constant][0], 7, 3, 0.5f, 0.25f, padding=[1, 1], out_dtype="int32")'
    found = one(call, x, constants=(w,))
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, expected)
    a, b = x[0, 0], x[0, 1]
    found = one('qnn.batch_matmul(%x, %y, 1, -2, 1f, 1f, transpose_b=True, out_dtype="int32")', a[None], b[None])
    np.testing.assert_array_equal(found[0], (a.astype(int) - 1) @ (b.astype(int) + 2).T)


@pytest.mark.parametrize("operator", ["add", "subtract"])
def test_integer_sums_at_different_scales(operator: str) -> None:
    x, y = (np.random.default_rng(seed).integers(-128, 128, 64).astype("int8") for seed in (0, 1))
    found = one(f"qnn.{operator}(%x, %y, 0.5f, 3, 0.25f, -4, 0.5f, 5)", x, y)
    sign = 1 if operator == "add" else -1
    expected = [int(a) - 3 + sign * fixed_point(int(b) + 4, 0.5) + 5 for a, b in zip(x, y, strict=True)]
    np.testing.assert_array_equal(found, np.clip(expected, -128, 127))


def test_quantize_rounds_halves_away_from_zero_and_dequantize_undoes_it() -> None:
    x = np.array([[-1.25, -0.75, -0.25, 0.25], [100, -100, 0.3, 0]], "float32")
    found = one('qnn.quantize(%x, 0.5f, 1, out_dtype="int8")', x)
    np.testing.assert_array_equal(found, [[-2, -1, 0, 2], [127, -128, 2, 1]])
    scales = np.array([0.5, 0.25], "float32")
    call = 'qnn.dequantize(%x, meta[relay.Constant][0], meta[relay.Constant][1], out_dtype="float32", axis=0)'
    zeros = np.array([1, -1], "int32")
    dequantized = one(call, found.astype("int8"), constants=(scales, zeros))
    np.testing.assert_array_equal(dequantized, (found.astype(int) - zeros[:, None]) * scales[:, None])


def test_shifts_and_division_round_down() -> None:
    x = np.array([-9, -8, -1, 0, 1, 7, 9], "int32")
    np.testing.assert_array_equal(one("right_shift(%x, 2)", x), x >> 2)
    np.testing.assert_array_equal(one("right_shift(%x, 0)", x), x)
    np.testing.assert_array_equal(one("left_shift(%x, 3)", x), x << 3)
    np.testing.assert_array_equal(one("floor_divide(%x, 7)", x), x // 7)


def test_shifts_divisors_and_places_that_are_computed() -> None:
    x, y = np.array([-(2**20), -5, -1, 7, 2**20], np.int32), np.array([0, 1, 3, 2, 10], np.int32)
    for call, expected in (
        ("right_shift(%x, %y)", x >> y),
        ("left_shift(%x, %y)", x << y),
        ("floor_divide(%x, add(%y, 1))", x // (y + 1)),
        ('take(%x, subtract(%y, 7), axis=0, mode="wrap")', x[(y - 7) % 5]),
    ):
        np.testing.assert_array_equal(one(call, x, y), expected, err_msg=call)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_integer_arithmetic_keeps_its_dtype(dtype: str) -> None:
    x = np.arange(4, dtype=dtype)
    for call, expected in (("add(%x, %x)", x + x), ("multiply(%x, %x)", x * x), ("sum(%x)", x.sum())):
        graph = from_relay(function(call, x=tensor((4,), dtype)))
        assert graph.outputs[0].type.dtype == dtype
        np.testing.assert_array_equal(graph.evaluate({"x": x})[0], expected)
