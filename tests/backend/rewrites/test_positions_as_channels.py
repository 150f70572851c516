"""Neighbouring positions as channels: the same sums for every geometry, where few output channels fill no vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from layers import DTYPES, Layers, assert_same_within_bounds, convolution, in_turn

from mrt.backend.machine import Machine
from mrt.backend.operators.join_phases import JoinPhases
from mrt.backend.rewrites.positions_as_channels import PositionsAsChannels
from mrt.backend.rewrites.rewrite import Facts
from mrt.errors import GraphError
from mrt.symbol import Runner

WIDE = PositionsAsChannels(Facts(Machine.of({"mcpu": "cascadelake"})))
"""16 lanes of 32 bits."""


@st.composite
def geometries(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Shapes of data and weight, and attributes, of one to three spatial axes."""
    rank = draw(st.integers(1, 3))

    def each(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(least, most), min_size=rank, max_size=rank)))

    inputs, outputs = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    attributes = {"stride": each(1, 3), "dilate": each(1, 2), "pad": each(0, 3)}
    return (2, inputs, *each(4, 20)), (outputs, inputs, *each(1, 7)), attributes


@given(geometries(), st.booleans(), st.integers(0, 2**32 - 1))
def test_every_geometry_gives_the_same_integers(
    geometry: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], bias: bool, seed: int
) -> None:
    shape, weights, attributes = geometry
    random = np.random.default_rng(seed)
    x, weight = (random.integers(-9, 10, each).astype(np.int8) for each in (shape, weights))
    try:
        before = convolution(x, weight, bias, **attributes)
    except GraphError:  # the window is larger than the data
        assume(False)
    after = WIDE.run(before).graph
    assume(len(after.operators) == 2)
    assert [symbol.op for symbol in after.operators] == ["Convolution", "join_phases"]
    assert_same_within_bounds(before, after, x)


@pytest.mark.parametrize(
    ("outputs", "kernel", "attributes", "length", "axis", "count", "reach"),
    [
        (1, (1, 256), {"stride": (1, 2)}, 1000, 1, 16, 286),
        (3, (9, 9), {"pad": (4, 4)}, 64, 1, 5, 13),
        (8, (3, 39), {}, 64, 1, 2, 40),
        (4, (5, 1), {"dilate": (2, 1)}, 64, 0, 4, 12),
    ],
)
@pytest.mark.parametrize("cpu", ["cascadelake", "x86-64-v3"])
def test_lanes_are_filled_by_the_positions_that_share_most_taps(
    cpu: str,
    outputs: int,
    kernel: tuple[int, int],
    attributes: dict[str, Any],
    length: int,
    axis: int,
    count: int,
    reach: int,
) -> None:
    data = np.zeros((1, 2, *(length if k > 1 else 3 for k in kernel)), np.int8)
    weight = np.ones((outputs, 2, *kernel), np.int8)
    rewrite = PositionsAsChannels(Facts(Machine.of({"mcpu": cpu})))
    layer, joined = rewrite.run(convolution(data, weight, **attributes)).graph.operators
    assert isinstance(joined.operator, JoinPhases)
    assert joined.operator.stride == tuple(count if place == axis else 1 for place in range(2))
    assert layer.operator.num_filter == outputs * count
    assert layer.operator.kernel == tuple(reach if place == axis else k for place, k in enumerate(kernel))


@pytest.mark.parametrize(
    ("outputs", "inputs", "kernel", "groups"),
    [(16, 3, (3, 3), 1), (1, 8, (1, 1), 1), (12, 8, (3, 3), 1), (4, 4, (3, 3), 4)],
)
def test_others_are_left_alone(outputs: int, inputs: int, kernel: tuple[int, int], groups: int) -> None:
    """Vectors that are full, windows that share no taps, and groups."""
    weight = np.ones((outputs, inputs // groups, *kernel), np.int8)
    before = convolution(np.zeros((1, inputs, 32, 32), np.int8), weight, num_group=groups)
    assert WIDE.run(before).graph is before


def test_winograds_algorithm_comes_first() -> None:
    """Where it serves, it leaves a quarter of the products."""
    random = np.random.default_rng(0)
    weight = random.integers(-3, 4, (3, 64, 3, 3)).astype(np.int8)
    before = convolution(np.zeros((1, 64, 96, 96), np.uint8), weight, pad=(1, 1))
    result = PositionsAsChannels(Facts(Machine.of({"mcpu": "x86-64-v3"}))).run(before)
    assert result.graph is before
    assert [refusal.reason for refusal in result.refusals] == ["Winograd's algorithm forms fewer products"]


def test_no_machine_has_no_lanes() -> None:
    before = convolution(np.zeros((1, 8, 9, 9), np.int8), np.ones((1, 8, 3, 3), np.int8))
    assert PositionsAsChannels().run(before).graph is before


@pytest.mark.sampled(2)
def test_compiled_layers_of_few_channels(runner: Runner, turn: int) -> None:
    """Requantized, and read by a convolution or by nobody."""
    layers = Layers()
    shapes = [
        ((1, 1, 300), 1, {"kernel": (64,), "stride": (2,)}),
        ((2, 8, 12, 33), 1, {"kernel": (5, 5), "pad": (2, 2)}),
        ((1, 16, 9, 17), 3, {"kernel": (3, 3), "pad": (1, 1)}),
        ((1, 4, 20, 7), 5, {"kernel": (7, 1), "dilate": (2, 1), "pad": (6, 0)}),
        ((1, 3, 4, 5, 14), 2, {"kernel": (3, 3, 3), "pad": (1, 1, 1)}),
    ]
    for (shape, filters, attributes), dtype in zip(shapes, in_turn(DTYPES, turn), strict=False):
        data = layers.requantized(layers.input(layers.integers(shape, "int16", -200, 200)), dtype)
        made = layers.requantized(layers.convolution(data, filters, **attributes))
        layers.finish(made)
        layers.finish(layers.requantized(layers.convolution(made, 16, (1,) * len(attributes["kernel"]))))
    layers.check(runner=runner)


def test_compiled_floats(runner: Runner) -> None:
    layers = Layers()
    x = layers.input(layers.random.standard_normal((2, 3, 6, 40)).astype(np.float32))
    weight = layers.parameter(layers.random.standard_normal((2, 3, 3, 5)).astype(np.float32))
    bias = layers.parameter(np.array([1.0, -2.0], np.float32))
    layers.add("Convolution", x, weight, bias, kernel=(3, 5), num_filter=2, pad=(1, 2))
    layers.check(1e-5, runner)
