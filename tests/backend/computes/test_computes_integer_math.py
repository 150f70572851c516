"""Integer square roots and divisions compiled, against the records."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from compiled import Bundle
from layers import kernel_texts

from mrt.backend import TvmRunner
from mrt.compilation import Target
from mrt.symbol import Symbol

HIGHEST = 2**31 - 1


@pytest.mark.parametrize("fraction_bits", [0, 3, 12])
def test_roots_are_exact(fraction_bits: int) -> None:
    bundle = Bundle()
    edges = [n * n + d for n in (1, 2, 3, 255, 256, 46339, 46340) for d in (-1, 0, 1)]
    values = np.array([0, *edges, HIGHEST - 1, HIGHEST, *bundle.integers((400,), "int32", 0)], np.int32)
    x = bundle.input(values)
    bundle.add("integer_sqrt", x, fraction_bits=fraction_bits)
    square = bundle.hidden("clip", bundle.input(bundle.integers((3, 5, 1), "int32")), a_min=0, a_max=HIGHEST)
    root = bundle.hidden("integer_sqrt", square, fraction_bits=fraction_bits)
    bundle.add(
        "floor_divide",
        bundle.input(bundle.integers((3, 5, 7), "int32")),
        bundle.hidden("clip", root, a_min=1, a_max=HIGHEST),
    )
    for dtype in ("uint8", "int16"):
        bundle.add("integer_sqrt", bundle.input(bundle.integers((2, 3, 4), dtype, 0)), fraction_bits=fraction_bits)
    bundle.check()


def test_division_rounds_down_at_the_extremes() -> None:
    bundle = Bundle()
    edges = np.array([-(2**31), -(2**31) + 1, -7, -6, -1, 0, 1, 6, 7, HIGHEST - 1, HIGHEST], np.int32)
    divisors = np.array([1, 2, 3, 7, 2**16, HIGHEST - 1, HIGHEST], np.int32)
    lhs = bundle.input(edges[:, None])
    bundle.add("floor_divide", lhs, bundle.input(divisors))
    bundle.add("floor_divide", lhs, bundle.parameter(divisors))
    each = np.broadcast_arrays(edges[:, None], divisors)
    bundle.add("floor_divide", *(bundle.input(np.ascontiguousarray(numbers)) for numbers in each))
    # Those of many numbers are inverted: all around the multiples of divisors of every size.
    sizes = np.array([2**n + d for n in range(31) for d in (-1, 0, 1) if 0 < 2**n + d <= HIGHEST], np.int64)
    multiples = sizes[:, None] * np.array([-(2**31) // sizes, -sizes * 0 - 1, sizes * 0 + 1, HIGHEST // sizes]).T
    near = (multiples[:, :, None] + np.arange(-2, 3)).reshape(len(sizes), -1).clip(-(2**31), HIGHEST).astype(np.int32)
    for divisor in (bundle.input(sizes[:, None].astype(np.int32)), bundle.parameter(sizes[:, None].astype(np.int32))):
        bundle.add("floor_divide", bundle.input(near), divisor)
    bundle.add("floor_divide", bundle.input(bundle.integers((4, 5), "int8")), bundle.input(np.array([[3]], np.uint8)))
    bundle.check()


@pytest.mark.parametrize("numbers", [1, 2, 15])
def test_a_divisor_of_several_numbers_is_inverted_once(numbers: int) -> None:
    bundle = Bundle()
    divisors = bundle.input(bundle.integers((1, 1, 6, 16), "int32", 1, 1000))
    bundle.add("floor_divide", bundle.input(bundle.integers((1, numbers, 6, 16), "int32")), divisors)
    (text,) = kernel_texts(bundle.graph())
    assert ("reciprocal" in text) == (numbers > 1)
    bundle.check()


@pytest.mark.parametrize("target", ["native", {"mcpu": "x86-64"}], ids=["native", "x86-64"])
def test_remainders_and_bits_at_the_extremes(target: Target) -> None:
    bundle = Bundle()
    edges = np.array([-(2**31), -(2**31) + 1, -256, -7, -6, -1, 0, 1, 6, 7, 255, HIGHEST - 1, HIGHEST], np.int32)
    divisors = np.array([1, 2, 3, 7, 256, 2**16, 2**30, HIGHEST - 1, HIGHEST], np.int32)
    x, column = bundle.input(edges), bundle.input(edges[:, None])
    for divisor in (bundle.input(divisors), bundle.parameter(divisors), bundle.parameter(np.int32(7))):
        bundle.add("floor_mod", column, divisor)
    for mask in (x, bundle.parameter(edges), bundle.parameter(np.int32(255)), bundle.input(edges.astype(np.int8))):
        bundle.add("bitwise_and", column, mask)
    some = bundle.input(bundle.integers((3, 17), "int32"))
    for dtype in ("int8", "uint8", "int16"):
        small = bundle.input(bundle.integers((3, 17), dtype))
        bundle.add("floor_mod", small, bundle.parameter(np.array([[3], [5], [100]], np.int8)))
        bundle.add("bitwise_and", small, some)
    bundle.check(runner=TvmRunner(target))


@pytest.mark.parametrize("target", ["native", {"mcpu": "x86-64"}], ids=["native", "x86-64"])
def test_what_pads_divisors_in_memory_is_no_divisor(target: Target) -> None:
    """Of 33 channels, padded to 48: numbers by as many divisors, which are padded by 0, and by one for each channel."""
    bundle = Bundle()
    data = bundle.input(bundle.integers((1, 33, 17)))
    weight = bundle.parameter(bundle.integers((33, 33, 1)))

    def layer(x: Symbol) -> Symbol:
        return bundle.hidden("Convolution", x, weight, kernel=(1,), num_filter=33, no_bias=True)

    def positive(x: Symbol) -> Symbol:
        return bundle.hidden("Cast", bundle.hidden("clip", x, a_min=1.0, a_max=100.0), dtype="int8")

    some = bundle.hidden("slice_axis", data, axis=1, begin=0, end=18)
    others = bundle.hidden("slice_axis", positive(layer(data)), axis=1, begin=18, end=33)
    joined = positive(bundle.hidden("Concat", some, others, dim=1))
    sums = bundle.hidden("Pooling", positive(layer(data)), kernel=(1,), global_pool=True, pool_type="sum")
    for divisor, division in itertools.product((joined, sums), ("floor_divide", "floor_mod")):
        quotient = bundle.hidden(division, layer(data), divisor)
        bundle.outputs.append(layer(positive(quotient)))
    bundle.check(runner=TvmRunner(target))


@pytest.mark.parametrize("limit", [0, 1, 31])
def test_a_shift_may_be_held_to_one_value(limit: int) -> None:
    bundle = Bundle()
    data = bundle.input(bundle.integers((2, 5, 4), "int32"))
    shift = bundle.hidden("clip", data, a_min=float(limit), a_max=float(limit))
    bundle.add("right_shift", data, shift)
    below = bundle.hidden("relu", bundle.hidden("clip", data, a_min=-3.0, a_max=0.0))
    bundle.add("right_shift", bundle.hidden("broadcast_add", below, bundle.parameter(np.array([limit]))), below)
    bundle.check()
