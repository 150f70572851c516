"""Deconvolutions as convolutions of phases: the same integers for every geometry, within the bounds that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import op
from hypothesis import assume, given
from hypothesis import strategies as st
from layers import DTYPES, Layers, assert_same_within_bounds, in_turn

from mrt.backend.explain import explain
from mrt.backend.rewrites.deconvolution_as_convolution import DeconvolutionAsConvolution
from mrt.errors import GraphError
from mrt.symbol import Graph, GraphBuilder, Runner, TensorType


def deconvolution(data: np.ndarray, weight: np.ndarray, bias: bool, **attributes: Any) -> Graph:
    groups = attributes["num_group"]
    attributes |= {"num_filter": groups * weight.shape[1], "no_bias": not bias}
    builder = GraphBuilder()
    given = [builder.input("x", TensorType(data.shape, "int8")), builder.parameter("w", weight)]
    if bias:
        given.append(builder.parameter("b", np.arange(attributes["num_filter"], dtype=np.int32) * 1000))
    return builder.graph([builder.apply(op("Deconvolution", **attributes), given, "y")])


@st.composite
def geometries(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Shapes of data and weight, and attributes, of one to three spatial axes."""
    rank, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2, 3]))

    def each(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(least, most), min_size=rank, max_size=rank)))

    kernel, stride = each(1, 5), each(1, 3)
    adj = tuple(min(a, s - 1) for a, s in zip(each(0, 2), stride, strict=True))
    inputs, outputs = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    attributes = {"kernel": kernel, "stride": stride, "dilate": each(1, 2), "pad": each(0, 3), "adj": adj}
    shape = (2, groups * inputs, *each(1, 5))
    return shape, (groups * inputs, outputs, *kernel), attributes | {"num_group": groups}


@given(geometries(), st.booleans(), st.integers(0, 2**32 - 1))
def test_every_geometry_gives_the_same_integers(
    geometry: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], bias: bool, seed: int
) -> None:
    shape, weights, attributes = geometry
    random = np.random.default_rng(seed)
    x, weight = (random.integers(-9, 10, each).astype(np.int8) for each in (shape, weights))
    try:
        before = deconvolution(x, weight, bias, **attributes)
    except GraphError:  # pad leaves no position
        assume(False)
    after = DeconvolutionAsConvolution().run(before).graph
    assert [symbol.op for symbol in after.operators] == ["Convolution", "join_phases"]
    assert_same_within_bounds(before, after, x)


def test_a_computed_weight_is_left_alone() -> None:
    builder = GraphBuilder()
    given = [builder.input("x", TensorType((1, 2, 5), "int8")), builder.input("w", TensorType((2, 3, 2), "int8"))]
    graph = builder.graph([builder.apply(op("Deconvolution", kernel=(2,), num_filter=3, stride=(2,)), given, "y")])
    (refusal,) = DeconvolutionAsConvolution().run(graph).refusals
    assert (refusal.symbol, refusal.reason) == ("y", "its weight or bias is computed")


@pytest.mark.sampled(2)
def test_compiled_deconvolutions(runner: Runner, turn: int) -> None:
    """Requantized, and read by a convolution, as in a decoder; in groups, of one channel each too.

    Every other shape on each CPU.
    """
    layers = Layers()
    shapes = [
        ((1, 32, 6, 7), 16, {"kernel": (2, 2), "stride": (2, 2)}),
        ((2, 16, 5, 5), 24, {"kernel": (4, 4), "stride": (2, 2), "pad": (1, 1)}),
        ((1, 12, 4, 6), 7, {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "adj": (1, 1)}),
        ((1, 20, 5, 4), 20, {"kernel": (4, 4), "stride": (2, 2), "pad": (1, 1), "num_group": 20}),
        ((1, 16, 9), 8, {"kernel": (5,), "stride": (3,), "num_group": 2}),
        ((1, 8, 3, 3), 8, {"kernel": (3, 3), "pad": (1, 1)}),
    ]
    for (shape, filters, attributes), dtype in zip(shapes[turn % 2 :: 2], in_turn(DTYPES, turn // 2), strict=False):
        data = layers.requantized(layers.input(layers.integers(shape, "int16", -200, 200)), dtype)
        weights = (shape[1], filters // attributes.get("num_group", 1), *attributes["kernel"])
        weight = layers.parameter_of(weights, "int8", -127, 127)
        made = layers.hidden("Deconvolution", data, weight, num_filter=filters, **attributes)
        read = layers.convolution(layers.requantized(made), 16, (1,) * len(attributes["kernel"]))
        layers.finish(layers.requantized(read))
    layers.check(runner=runner)
    assert not [call for call in explain(layers.graph(), []).calls if "Deconvolution" in call.operators]
