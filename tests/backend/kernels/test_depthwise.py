"""Depthwise convolutions, whatever instructions multiply."""

from __future__ import annotations

import pytest
from layers import BYTES, Layers, in_turn

from mrt.backend import TvmRunner
from mrt.backend.kernels.x86.vnni.dots import PERMUTES
from mrt.backend.machine import Machine
from mrt.symbol import Runner


def test_depthwise_convolutions(runner: Runner, turn: int) -> None:
    """Every other shape on each CPU."""
    layers = Layers()
    shapes = [
        ((2, 32, 9, 7), (3, 3), {}),
        ((1, 19, 8, 8), (3, 3), {"stride": (2, 2)}),
        ((2, 40, 6, 9), (3, 3), {"pad": (1, 1)}),
        ((1, 16, 8, 6), (2, 3), {"stride": (2, 1)}),
        ((1, 3, 8, 8), (5, 5), {"dilate": (1, 2), "pad": (2, 4)}),
        ((1, 48, 12, 12), (8, 7), {}),
        ((1, 19, 12, 12), (8, 7), {}),
        ((1, 1, 6, 6), (3, 3), {}),
        ((1, 24, 15), (4,), {"stride": (3,)}),
    ][turn % 2 :: 2]
    for (shape, kernel, attributes), dtype in zip(shapes, in_turn(BYTES, turn // 2), strict=False):
        first = layers.requantized(layers.input(layers.integers(shape, "int16", -200, 200)), dtype)
        depthwise = layers.convolution(first, shape[1], kernel, num_group=shape[1], **attributes)
        layers.finish(layers.requantized(layers.convolution(layers.requantized(depthwise), 8, (1,) * len(kernel))))
    layers.check(runner=runner)


ENDS = {"int16": (-(2**15), 2**15 - 1), "uint8": (0, 255)}
"""Of the ranges of data."""


def at_the_ends(lo: int, hi: int, first: int = 0, step: int = 1) -> Layers:
    """Data at both ends of its range, and weights at those of theirs: in strips of one line and of two, whose rows
    begin at the same or at different places of a dot. first, step: which of them."""
    layers = Layers()
    dtype = "uint8" if hi == 255 else "int16"
    for shape, kernel, attributes in [
        ((1, 32, 9, 7), (3, 3), {"pad": (1, 1)}),
        ((1, 19, 10, 6), (3, 3), {}),
        ((1, 16, 9, 9), (3, 3), {"stride": (2, 2)}),
        ((1, 16, 10, 6), (5, 3), {"stride": (3, 1), "dilate": (1, 2)}),
        ((1, 17, 12, 9), (5, 5), {"stride": (1, 2)}),
        ((1, 16, 9, 8), (4, 1), {"dilate": (2, 1)}),
        ((1, 16, 8, 4), (1, 1), {}),
        ((1, 64, 6, 8), (3, 3), {}),
        ((1, 80, 7, 9), (3, 3), {"stride": (2, 2)}),
    ][first::step]:
        ends = layers.random.choice([lo, lo + 1, hi], shape).astype(dtype)
        data = layers.hidden("clip", layers.input(ends), a_min=float(lo), a_max=float(hi))
        weight = layers.parameter(layers.random.choice([-128, -127, 1, 127], (shape[1], 1, *kernel)).astype("int8"))
        attributes = {"kernel": kernel, "num_filter": shape[1], "num_group": shape[1], "no_bias": True, **attributes}
        layers.add("Convolution", data, weight, **attributes)
    return layers


def test_data_of_16_bits(runner: Runner, turn: int) -> None:
    """Every other shape on each CPU."""
    at_the_ends(*ENDS["int16"], turn % 2, 2).check(runner=runner)


@pytest.mark.parametrize("ends", ["int16", "uint8"])
def test_rows_whose_bytes_are_permuted(ends: str) -> None:
    target = {"mcpu": "icelake-server"}
    assert Machine.of(target).has(PERMUTES)
    at_the_ends(*ENDS[ends]).check(runner=TvmRunner(target))
