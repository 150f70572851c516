"""Crossed dots: one product of sums for two products, with the integers of these."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from compiled import assert_same_at_the_ends
from layers import TARGETS, Layers, assembly, runnable

from mrt.backend import TvmRunner
from mrt.backend.explain import explain
from mrt.backend.kernels.dot_instructions import Dot, choose_dot
from mrt.backend.kernels.generic.crossed_dot import FULL_TILE, crossed_weights, crosses, of_weights
from mrt.backend.machine import Machine
from mrt.backend.memory.storage import Storage, Walk
from mrt.backend.te.operands import Surroundings
from mrt.symbol import Interval, Symbol, TensorType

AVX2 = "x86-64-v3"
pytestmark = pytest.mark.usefixtures("direct_sums")

RANGES = {"uint8": (0, 255), "int8": (-128, 127), "int16": (-2000, 2000)}
"""Data that convolutions cross; those of int16 up to 900 terms."""


def test_sums_of_products_of_sums_are_those_of_products() -> None:
    """By the arrays that memory holds: (x1 + w2)(x2 + w1), and what is taken off."""
    random = np.random.default_rng(0)
    weight, data = random.integers(-128, 128, (3, 5, 8, 4, 2)), random.integers(0, 256, (5, 8, 2))
    two = crossed_weights(weight.astype(np.int16)).astype(np.int64)
    assert two.shape == (3, 5, 4, 8, 2)
    first, second = data[:, ::2, None], data[:, 1::2, None]
    products = (first + two[..., 4:, :]) * (second + two[..., :4, :])
    found = products.sum(axis=(1, 2, 4)) + of_weights(weight) - (first * second).sum()
    np.testing.assert_array_equal(found, (weight * data[:, :, None]).sum(axis=(1, 2, 4)))


@pytest.mark.parametrize(
    ("crossed", "shape", "data", "positions", "most"),
    [
        (True, (128, 64, 1, 1), (0, 255), (7, 7), 127),
        (True, (128, 8, 3, 3), (-128, 127), (2, 2), 127),
        (False, (127, 64, 1, 1), (0, 255), (14, 14), 127),
        (False, (128, 64, 1, 1), (0, 255), (1, 3), 127),
        (False, (128, 56, 1, 1), (0, 255), (14, 14), 127),
        (False, (128, 68, 1, 1), (0, 255), (14, 14), 127),
        (True, (128, 64, 1, 1), (-8000, 8000), (14, 14), 60),
        (False, (128, 72, 1, 1), (-8000, 8000), (14, 14), 127),
        (True, (128, 29432, 1, 1), (0, 255), (14, 14), 127),
        (False, (128, 29440, 1, 1), (0, 255), (14, 14), 127),
        (False, (128, 64, 1, 1), (0, 32700), (14, 14), 127),
        (False, (128, 64, 1, 1), (0, 255), (35, 35), 127),
        (False, (128, 64, 1, 1), (0, 255), (17, 17), 127),
        (False, (136, 64, 1, 1), (0, 255), (17, 17), 127),
    ],
)
def test_where_dots_are_crossed(
    crossed: bool, shape: tuple[int, ...], data: tuple[int, int], positions: tuple[int, int], most: int
) -> None:
    """Of many positions, output channels and terms, of which none is left over, in tiles as large as those of other
    dots, and where no sum is too large."""
    weight, machine = np.full(shape, most, np.int8), Machine.of(TARGETS[AVX2])
    bounds = [Interval.of(*data, (1, shape[1], *positions)), Interval.of(-most, most, shape)]
    dot = choose_dot("int16", weight, "int32", machine)

    def found(dot: Dot, depth: int = shape[1], *bias: Interval) -> bool:
        made = Storage.with_inner(TensorType((1, len(weight), *positions), "int32"), 1, len(weight))
        return crosses(weight, dot, depth, False, Surroundings((), machine, Walk(made, False), (*bounds, *bias)))

    assert found(dot) is crossed
    assert not found(dot, shape[1] + 8), "memory holds other channels, too"
    assert not found(dot, shape[1], Interval.of(-(2**31), 0, (shape[0],))), "with a bias"
    assert dot.formed_by is not None
    assert not found(replace(dot, formed_by=replace(dot.formed_by, crosses=False))), "by another instruction"


def chains(dtype: str, with_bias: bool) -> Layers:
    """Convolutions and rows of sizes that are crossed, by tiles that are jammed and such that are not.

    A third of the sizes without a bias, another one with it; of the next dtype other ones.
    """
    layers, (lo, hi) = Layers(), RANGES[dtype]

    def data(*shape: int) -> Symbol:
        given = layers.input(layers.integers(shape, "int16", -300, 300))
        clipped = layers.hidden("clip", given, a_min=float(lo), a_max=float(hi))
        return layers.hidden("Cast", clipped, dtype=dtype)

    for shape, filters, kernel, attributes in [
        ((1, 64, 7, 7), 128, 1, {}),
        ((1, 72, 5, 5), 136, 1, {}),
        ((2, 64, 14, 14), 144, 1, {}),
        ((1, 88, 17, 17), 136, 1, {}),
        ((1, 96, 7, 15), 130, 1, {"stride": (2, 2)}),
        ((1, 16, 8, 8), 128, 3, {"pad": (1, 1)}),
        ((1, 24, 16, 16), 128, 3, {"stride": (2, 2), "pad": (1, 1)}),
        ((1, 8, 12, 8), 129, 5, {"dilate": (2, 1)}),
    ][(list(RANGES).index(dtype) + with_bias) % 3 :: 3]:
        attributes = {"kernel": (kernel, kernel), "num_filter": filters, "no_bias": not with_bias, **attributes}
        weight = layers.parameter_of((filters, shape[1], kernel, kernel), "int8", -127, 127)
        bias = [layers.parameter_of((filters,), "int32", -(2**20), 2**20)] if with_bias else []
        sums = layers.hidden("Convolution", data(*shape), weight, *bias, **attributes)
        layers.finish(layers.requantized(sums))
        layers.finish(sums)
    weight = layers.parameter_of((136, 64), "int8", -127, 127)
    rows = layers.hidden("FullyConnected", data(8, 64), weight, num_hidden=136, no_bias=True)
    layers.finish(rows)
    return layers


@pytest.mark.parametrize(("with_bias", "threads"), [(False, 1), (True, 2)], ids=["no bias", "bias, two threads"])
@pytest.mark.parametrize("dtype", RANGES)
def test_their_integers_are_those_of_direct_sums(dtype: str, with_bias: bool, threads: int) -> None:
    if AVX2 not in runnable():
        pytest.skip(f"this machine does not run code for {AVX2}")
    chains(dtype, with_bias).check(runner=TvmRunner({**TARGETS[AVX2], "threads": threads}))


@pytest.mark.parametrize(("lo", "hi"), [(0, 255), (-128, 127), (-2000, 2000)])
def test_at_the_ends_of_their_ranges(lo: int, hi: int) -> None:
    """Weights and data all at one end make the largest sums."""
    if AVX2 not in runnable():
        pytest.skip(f"this machine does not run code for {AVX2}")
    layers = Layers()
    given = layers.input(layers.integers((1, 64, 6, 6), "int16", lo, hi))
    clipped = layers.hidden("clip", given, a_min=float(lo), a_max=float(hi))
    signs = np.where(layers.integers((128, 64, 1, 1), "int8") > 0, 127, -128).astype(np.int8)
    signs[0], signs[1] = 127, -128
    attributes = {"kernel": (1, 1), "num_filter": 128, "no_bias": True}
    layers.finish(layers.hidden("Convolution", clipped, layers.parameter(signs), **attributes))
    assert_same_at_the_ends(layers.graph(), lo, hi, TvmRunner(TARGETS[AVX2]))


def layer(filters: int) -> Layers:
    layers = Layers()
    data = layers.requantized(layers.input(layers.integers((1, 64, 14, 14), "int16", -200, 200)))
    layers.finish(layers.convolution(data, filters, (1, 1)))
    return layers


def test_what_is_compiled() -> None:
    """Two additions of int16 for each product, with AVX2 and nothing newer; sums of few channels are as they were."""

    def counted(filters: int, cpu: str) -> tuple[int, int]:
        code = assembly(layer(filters).graph(), {**TARGETS[cpu], "threads": 1})
        return code.count("paddw"), code.count("pmaddwd")

    additions, products = counted(128, AVX2)
    assert additions == 2 * FULL_TILE, "two for each sum of a tile, whose turns make one step"
    assert FULL_TILE < products <= additions, "some more multiply data by data"
    for filters, cpu in ((112, AVX2), (128, "x86-64"), (128, "x86-64-v4"), (128, "cascadelake")):
        additions, products = counted(filters, cpu)
        assert additions < max(products, 1), (filters, cpu)


def test_it_is_told() -> None:
    told = [call.products for call in explain(layer(128).graph(), [], TARGETS[AVX2]).calls if call.products]
    assert len(told) == 1 and "by half as many products of sums" in told[0]
