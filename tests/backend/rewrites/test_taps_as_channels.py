"""Neighbouring taps as channels: the same sums for every geometry, where few input channels fill no dot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from layers import DTYPES, Layers, assert_same_within_bounds, convolution, in_turn

from mrt.backend.machine import Machine
from mrt.backend.operators.neighbours import Neighbours
from mrt.backend.rewrites.rewrite import Facts
from mrt.backend.rewrites.taps_as_channels import TapsAsChannels
from mrt.errors import GraphError
from mrt.symbol import Runner
from mrt.symbol.operators.convolution import Convolution

PASS = TapsAsChannels(Facts(Machine.of({"mcpu": "cascadelake"})))
"""Dots of four bytes, or of two int16."""


@st.composite
def geometries(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Shapes of data and weight, and attributes, of one to three spatial axes."""
    rank = draw(st.integers(1, 3))

    def each(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(least, most), min_size=rank, max_size=rank)))

    inputs, outputs = draw(st.integers(1, 2)), draw(st.integers(2, 20))
    attributes = {"stride": each(1, 3), "dilate": each(1, 2), "pad": each(0, 3)}
    return (2, inputs, *each(3, 12)), (outputs, inputs, *each(1, 7)), attributes


@given(geometries(), st.sampled_from(["int8", "int16"]), st.booleans(), st.integers(0, 2**32 - 1))
def test_every_geometry_gives_the_same_integers(
    geometry: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], dtype: str, bias: bool, seed: int
) -> None:
    shape, weights, attributes = geometry
    random = np.random.default_rng(seed)
    x, weight = random.integers(-9, 10, shape).astype(dtype), random.integers(-9, 10, weights).astype(np.int8)
    try:
        before = convolution(x, weight, bias, **attributes)
    except GraphError:  # the window is larger than the data
        assume(False)
    after = PASS.run(before).graph
    assume(after is not before)
    assert [symbol.op for symbol in after.operators if symbol.op != "Pad"] == ["neighbours", "Convolution"]
    assert_same_within_bounds(before, after, x)


@pytest.mark.parametrize(
    ("inputs", "kernel", "attributes", "axis", "count", "taps", "pad"),
    [
        (1, (3, 3), {"pad": (1, 1)}, 3, 4, (3, 1), (1, 0)),
        (1, (10, 4), {"pad": (0, 2)}, 3, 4, (10, 1), (0, 0)),
        (1, (7, 1), {}, 2, 4, (2, 1), (0, 0)),
        (2, (5, 5), {"dilate": (1, 2)}, 3, 2, (5, 3), (0, 0)),
    ],
)
def test_the_axis_that_leaves_fewest_taps(
    inputs: int,
    kernel: tuple[int, int],
    attributes: dict[str, Any],
    axis: int,
    count: int,
    taps: tuple[int, int],
    pad: tuple[int, int],
) -> None:
    graph = convolution(np.zeros((1, inputs, 32, 32), np.int8), np.ones((16, inputs, *kernel), np.int8), **attributes)
    layer = PASS.run(graph).graph.outputs[0]
    moved = layer.inputs[0].operator
    assert moved == Neighbours(axis, count, attributes.get("dilate", (1, 1))[axis - 2])
    assert isinstance(layer.operator, Convolution)
    assert (layer.operator.kernel, layer.operator.pad) == (taps, pad)


@pytest.mark.parametrize(
    ("shape", "weights", "dtype", "attributes"),
    [
        ((1, 3, 32, 32), (16, 3, 3, 3), "int8", {}),
        ((1, 2, 32, 32), (16, 2, 3, 3), "int16", {}),
        ((1, 1, 32, 32), (16, 1, 1, 1), "int8", {}),
        ((1, 1, 32, 32), (16, 1, 3, 3), "int8", {"stride": (9, 9)}),
        ((1, 1, 32, 32), (1, 1, 3, 3), "int8", {}),
        ((1, 2, 32, 32), (16, 1, 3, 3), "int8", {"num_group": 2}),
    ],
)
def test_others_are_left_alone(
    shape: tuple[int, ...], weights: tuple[int, ...], dtype: str, attributes: dict[str, Any]
) -> None:
    """Dots that are full, windows of one tap, few windows, channels in lanes, and groups."""
    graph = convolution(np.zeros(shape, dtype), np.ones(weights, np.int8), **attributes)
    assert PASS.run(graph).graph is graph


@pytest.mark.sampled(2)
def test_compiled_layers_of_few_channels(runner: Runner, turn: int) -> None:
    layers = Layers()
    shapes = [
        ((1, 1, 300), 24, {"kernel": (64,), "stride": (16,)}),
        ((2, 1, 12, 13), 16, {"kernel": (5, 5), "pad": (2, 2)}),
        ((1, 1, 49, 10), 64, {"kernel": (10, 4), "stride": (2, 2), "pad": (4, 1)}),
        ((1, 2, 30), 16, {"kernel": (7,), "dilate": (2,), "pad": (6,)}),
        ((1, 1, 5, 6, 7), 16, {"kernel": (3, 3, 3), "pad": (1, 1, 1)}),
    ]
    for (shape, filters, attributes), dtype in zip(shapes, in_turn(DTYPES, turn), strict=False):
        data = layers.requantized(layers.input(layers.integers(shape, "int16", -200, 200)), dtype)
        layers.finish(layers.requantized(layers.convolution(data, filters, **attributes)))
    layers.check(runner=runner)
