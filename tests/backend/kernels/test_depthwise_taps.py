"""Depthwise convolutions of floats, whose sums of a tile are in registers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from compiled import Bundle
from layers import TARGETS, assembly

from mrt.symbol import Runner

CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 32, 9, 14), (3, 3), {"pad": (1, 1)}),
    ((1, 24, 5, 19), (3, 3), {"pad": (1, 1)}),
    ((1, 19, 8, 9), (3, 3), {"stride": (2, 2)}),
    ((1, 40, 6, 32), (5, 3), {"pad": (2, 1), "dilate": (1, 2)}),
    ((1, 48, 12, 13), (9, 7), {"pad": (4, 3)}),
    ((1, 3, 8, 8), (3, 3), {"pad": (1, 1)}),
    ((1, 1, 6, 6), (3, 3), {}),
    ((1, 16, 5, 4), (1, 1), {}),
    ((1, 64, 31), (4,), {"stride": (3,)}),
    ((1, 32, 3, 5, 8), (2, 3, 3), {"pad": (0, 1, 1)}),
]
"""Rows of whole tiles and of such whose last one is shorter, of channels that fill vectors, and others; shapes of data,
kernels, and other attributes."""


def depthwise(*cases: tuple[tuple[int, ...], tuple[int, ...], Mapping[str, Any]], act: str) -> Bundle:
    """Convolutions with a bias, and what is done to each of their results."""
    layers = Bundle()
    for shape, kernel, more in cases:
        weight = layers.floats(shape[1], 1, *kernel)
        bias = weight.reshape(shape[1], -1)[:, 0]
        given = [layers.input(layers.floats(*shape)), layers.parameter(weight), layers.parameter(bias)]
        attributes = {"kernel": kernel, "num_filter": shape[1], "num_group": shape[1], **more}
        layers.add(act, layers.hidden("Convolution", *given, **attributes))
    return layers


@pytest.mark.sampled(2)
def test_sums_of_floats(runner: Runner, turn: int) -> None:
    """What is written out for each vector of a tile, and what is a loop: of one case or the other, by the CPU."""
    for place, act in enumerate(("relu", "sigmoid")):
        depthwise(*CASES[(turn + place) % 2 :: 2], act=act).check(tolerance=1e-5, runner=runner)


@pytest.mark.parametrize(
    ("cpu", "channels", "length", "vectors"),
    [
        ("x86-64-v3", 64, 14, (7, 2)),
        ("x86-64-v3", 24, 28, (7, 2)),
        ("x86-64-v3", 64, 16, (4, 2)),
        ("x86-64-v3", 64, 19, (7, 2)),
        ("x86-64-v4", 64, 28, (14, 1)),
    ],
)
def test_registers_hold_the_sums_of_a_tile(cpu: str, channels: int, length: int, vectors: tuple[int, int]) -> None:
    """Weights are loaded once for all positions of one, and a line of the cache is read as a whole."""
    code = assembly(depthwise(((1, channels, 7, length), (3, 3), {"pad": (1, 1)}), act="relu").graph(), TARGETS[cpu])
    loops = [part[: part.rindex("vfmadd")] for part in products(code)]
    loop, (positions, blocks) = "".join(products(code)).replace("\t", " "), vectors
    sums = re.findall(r"vfmadd\w+ (.*)", loop)
    assert len(sums) == positions * blocks
    assert all("(" in each for each in sums)
    assert len(re.findall(r"vmovups -?\d*\(", loop[: loop.rindex("vfmadd")])) == blocks
    assert not any(re.search(r"mm\d+, -?\d*\(%rsp", each) for each in loops)


def test_long_epilogues_are_loops() -> None:
    """An exponential is not written out for each vector of a tile."""
    short, long = (
        assembly(depthwise(((1, 64, 7, 14), (3, 3), {}), act=act).graph(), TARGETS["x86-64-v3"]).count("\n")
        for act in ("relu", "exp")
    )
    assert long < 1.2 * short


def products(code: str) -> list[str]:
    """The parts of a listing, from label to label, that multiply."""
    return [part for part in re.split(r"\n\.LBB\w+:", code) if "vfmadd231ps" in part and "(" in part]
