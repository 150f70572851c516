"""Elementwise operators compiled, against the records."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from compiled import Bundle

from mrt.backend import TvmRunner
from mrt.symbol import NumpyRunner

INT32 = np.iinfo(np.int32)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_integer_arithmetic_is_exact(dtype: str) -> None:
    bundle = Bundle()
    limits = {"int32": (-30000, 30000)}.get(dtype, (None, None))
    x, y = (bundle.input(bundle.integers((2, 3, 4, 5), dtype, *limits)) for _ in range(2))
    for name in ("elemwise_add", "elemwise_sub", "elemwise_mul", "broadcast_add"):
        bundle.add(name, x, y)
    bundle.add("elemwise_mul", x, x)
    bundle.add("add_n", x, y, x)
    bundle.add("add_n", x)
    for place, shape in enumerate(((1,), (3, 1, 1), (1, 3, 1, 1), (1, 1, 1, 5), (2, 1, 4, 1), (1, 1, 1, 1), (4, 5))):
        z = bundle.parameter(bundle.integers(shape, dtype, *limits))
        bundle.add("broadcast_sub", x, z)
        bundle.add("broadcast_sub", z, x)
        bundle.add("broadcast_add", *(x, z) if place % 2 else (z, x))
        bundle.add("broadcast_mul", *(z, x) if place % 2 else (x, z))
    bundle.add("broadcast_add", bundle.input(bundle.integers((2, 1), "int8")), bundle.input(bundle.integers((1, 3))))
    bundle.add("relu", x)
    bundle.add("clip", x, a_min=-7.0, a_max=100.0)
    bundle.add("clip", x, a_min=-1e9, a_max=1e9)
    bundle.add("_copy", x)
    bundle.add("Dropout", x)
    bundle.add("Cast", x, dtype="int32")
    bundle.add("Cast", x, dtype="float32")
    bundle.add("Cast", bundle.hidden("clip", x, a_min=0, a_max=127), dtype="uint8")
    bundle.add("Cast", x, dtype="bool")
    bundle.keep_in_turn(dtype)
    bundle.check()


def test_float_functions_agree() -> None:
    bundle = Bundle()
    x, y = (bundle.input(bundle.floats(2, 3, 4, 5) * 3) for _ in range(2))
    for name in ("elemwise_add", "elemwise_sub", "elemwise_mul", "broadcast_div"):
        bundle.add(name, x, y)
    for shape in ((3, 1, 1), (1, 1, 1, 5), (1,)):
        z = bundle.parameter(bundle.floats(*shape))
        for name in ("broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_div"):
            bundle.add(name, x, z)
    for name in ("relu", "tanh", "sigmoid", "_copy", "Dropout"):
        bundle.add(name, x)
    for name in ("_plus_scalar", "_minus_scalar", "_rminus_scalar", "_mul_scalar", "_div_scalar", "_rdiv_scalar"):
        bundle.add(name, x, scalar=1.7)
    bundle.add("clip", x, a_min=-0.5, a_max=1.25)
    bundle.add("LeakyReLU", x)
    bundle.add("LeakyReLU", x, slope=0.1)
    bundle.add("LeakyReLU", x, bundle.parameter(bundle.floats(3)), act_type="prelu")
    bundle.add("LeakyReLU", x, bundle.parameter(bundle.floats(1)), act_type="prelu")
    bundle.add("Cast", x, dtype="int32")
    bundle.add("Cast", x, dtype="float64")
    bundle.add("tanh", bundle.input(np.array([-1e30, -20, -1e-4, 0, 1e-4, 20, 1e30], np.float32)))
    bundle.add("sigmoid", bundle.input(np.array([-1e30, -100, -1e-4, 0, 1e-4, 100, 1e30], np.float32)))
    bundle.check(tolerance=1e-5)


EXTREMES = [INT32.min, INT32.min + 1, -(2**30), -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 2**30, INT32.max - 1, INT32.max]


def test_shifts_round_half_up_for_every_shift_and_extreme() -> None:
    """The oracle is floor(x / 2^s + 1/2) in fractions."""
    bundle = Bundle()
    x = np.array(EXTREMES, np.int32)[:, None]
    shifts = np.arange(32, dtype=np.int32)[None]
    symbol = bundle.add("right_shift", bundle.input(x), bundle.parameter(shifts))
    (found,) = TvmRunner().prepare(bundle.graph())(bundle.feeds)
    expected = [[v if s == 0 else floor(Fraction(v, 2**s) + Fraction(1, 2)) for s in range(32)] for v in EXTREMES]
    assert found.dtype == np.int32 and symbol.shape == found.shape
    assert found.tolist() == expected


def test_shifts_per_channel_of_every_storage() -> None:
    bundle = Bundle()
    for dtype in ("int8", "uint8", "int16", "int32"):
        x = bundle.input(bundle.integers((2, 6, 3, 3), dtype))
        shifts = np.array([0, 1, 7, 0, 31, 15], np.int32).reshape(1, 6, 1, 1)
        bundle.add("right_shift", x, bundle.parameter(shifts))
        bundle.add("right_shift", x, bundle.input(shifts))
    small = bundle.input(bundle.integers((2, 6, 3, 3), "int32", -100, 100))
    bundle.add("left_shift", small, bundle.parameter(np.array([0, 1, 7, 0, 23, 15], np.int32).reshape(1, 6, 1, 1)))
    bundle.add(
        "left_shift", bundle.input(np.array([1, -1, 0], np.int8)), bundle.parameter(np.array([30, 31, 31], np.int32))
    )
    bundle.check()


def test_chains_of_fused_operators_are_exact() -> None:
    """Each is a requantization: pre-shift, multiply, shift, clip, store."""
    bundle = Bundle()
    for dtype, lo, hi in (("int8", -127, 127), ("uint8", 0, 255), ("int16", -32767, 32767)):
        x = bundle.input(bundle.integers((2, 5, 7, 3), "int32", -(2**30), 2**30))
        pre = bundle.parameter(np.array([7, 8, 9, 8, 10], np.int32).reshape(1, 5, 1, 1))
        factor = bundle.parameter(bundle.integers((1, 5, 1, 1), "int32", 1, 255))
        post = bundle.parameter(np.array([0, 20, 14, 31, 1], np.int32).reshape(1, 5, 1, 1))
        value = bundle.hidden("right_shift", x, pre)
        value = bundle.hidden("broadcast_mul", value, factor)
        value = bundle.hidden("right_shift", value, post)
        value = bundle.hidden("clip", value, a_min=lo, a_max=hi)
        value = bundle.hidden("Cast", value, dtype=dtype)
        residual = bundle.hidden("elemwise_add", value, bundle.input(bundle.integers((2, 5, 7, 3), dtype)))
        bundle.add("relu", residual)
    bundle.check()


TIES = np.array(
    [-2.5, -1.5, -0.5, -0.0, 0.5, 1.5, 2.5, 3.5, 126.5, 127.5, -127.5, 1e9, -1e9, 1e30, -1e30, np.inf], np.float32
)


def test_quantize_rounds_half_to_even_and_saturates() -> None:
    bundle = Bundle()
    x = bundle.input(np.concatenate([TIES, bundle.floats(200) * 50]))
    for scale in (1.0, 0.1, 3.0):
        step = bundle.parameter(np.array([scale], np.float32))
        for dtype in ("int8", "uint8", "int16", "int32"):
            info = np.iinfo(dtype)
            for zero_point in (0, 3):
                zero = bundle.parameter(np.array(zero_point, np.int8))
                bundle.add("quantize", x, step, zero, a_min=int(info.min), a_max=int(info.max), dtype=dtype)
    zeros = bundle.parameter(np.arange(216, dtype=np.int32) - 100)
    bundle.add("quantize", x, step, zeros, a_min=0, a_max=65535, dtype="int32")
    bundle.check()
    (ties,) = TvmRunner().prepare(single(TIES))({"x_in_fed": TIES})
    assert ties.tolist()[:8] == [-2, -2, 0, 0, 0, 2, 2, 4]


def single(x: np.ndarray):
    bundle = Bundle()
    scale = bundle.parameter(np.array([1.0], np.float32))
    zero = bundle.parameter(np.array(0, np.int8))
    bundle.add("quantize", bundle.input(x), scale, zero, a_min=-128, a_max=127, dtype="int8")
    return bundle.graph()


def test_dequantize_rounds_once() -> None:
    bundle = Bundle()
    for dtype in ("int8", "uint8", "int16", "int32"):
        x = bundle.input(bundle.integers((4, 50), dtype))
        scale = bundle.parameter(np.abs(bundle.floats(4, 1)) + np.float32(1e-3))
        for zero_point in (np.array(-7, np.int8), np.array([[-7], [0], [300], [7]], np.int32)):
            bundle.add("dequantize", x, scale, bundle.parameter(zero_point))
    bundle.check()


def test_both_runners_serve_the_protocol() -> None:
    bundle = Bundle()
    bundle.add("relu", bundle.input(bundle.floats(2, 3)))
    graph = bundle.graph()
    a, b = (runner.prepare(graph)(bundle.feeds) for runner in (TvmRunner(), NumpyRunner()))
    np.testing.assert_array_equal(a[0], b[0])


def test_fake_quantize_takes_the_levels_of_its_definition() -> None:
    """The level's value may be an ulp off, where a product and a sum are contracted."""
    bundle = Bundle()
    x = bundle.input(np.concatenate([TIES, np.linspace(-3, 3, 241, dtype=np.float32)]).reshape(1, -1))
    limits = np.float32([[-1, 2, -1, 2], [2, -1, 0, 5], [0.25, 0.25, -1, 1], [-2, 2, 3, -3]])
    largest = []
    for levels in (2, 16, 256, 65536):
        for low, high, first, last in limits:
            ends = [bundle.parameter(np.full((1,), end)) for end in (low, high, first, last)]
            bundle.add("FakeQuantize", x, *ends, levels=levels)
            largest.append(max(abs(first), abs(last)))
    graph = bundle.graph()
    found, wanted = TvmRunner().prepare(graph)(bundle.feeds), graph.evaluate(bundle.feeds)
    for a, b, most in zip(found, wanted, largest, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-7, atol=2e-7 * most)
