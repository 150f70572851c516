"""Networks of which quantization leaves nothing are told: values too small for a scale, outputs that are fixed."""

from __future__ import annotations

import numpy as np
import pytest

import mrt
from mrt.symbol import Graph, GraphBuilder, NumpyRunner, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.transform import SliceAxis

SEED = 0
"""Of all that is drawn, so that a test draws the same whichever ran before it."""
X = np.random.default_rng(SEED).standard_normal((32, 8)).astype(np.float32)


def network(first: float = 1.0, second: float = 1.0, bias: float = 0.0) -> Graph:
    """Two layers whose weights are about `first` and `second`, and the first one's bias about `bias`."""
    builder, random = GraphBuilder(), np.random.default_rng(SEED + 1)
    x = builder.input("x", TensorType((1, 8)))
    weights = [(random.standard_normal((8, 8)) * size).astype(np.float32) for size in (first, second)]
    offset = builder.parameter("b0", (random.standard_normal(8) * bias).astype(np.float32))
    dense, plain = FullyConnected(num_hidden=8), FullyConnected(num_hidden=8, no_bias=True)
    hidden = builder.apply(dense, [x, builder.parameter("w0", weights[0]), offset], "fc0")
    hidden = builder.apply(Relu(), [hidden], "relu")
    return builder.graph([builder.apply(plain, [hidden, builder.parameter("w1", weights[1])], "fc1")])


def notes(graph: Graph, x: np.ndarray = X, **options: object) -> tuple[list[str], bool]:
    """The notes on what is lost, and whether the integers are the same for all samples and for noise."""
    model = mrt.quantize(graph, [x], mrt.QuantizationConfig(**{"preset": "mrt", **options}), runner=NumpyRunner())
    noise = np.random.default_rng(SEED + 2).standard_normal((50, 8))
    fed = model.quantize_inputs(np.concatenate([x, noise * np.abs(x).max()]))
    (found,) = model.rebatched(len(fed["x"])).graph.evaluate(fed)
    told = [note for note in model.notes if "for every input" in note or "throughout" in note]
    return told, bool((found == found[:1]).all())


@pytest.mark.parametrize("options", [{}, {"activation": {"quantizer": "affine"}}])
@pytest.mark.parametrize("size", [1e-28, 1e-30, 1e-34, 1e-40])
def test_weights_too_small_for_a_scale_are_told(size: float, options: dict[str, object]) -> None:
    for graph in (network(first=size), network(second=size)):
        told, is_fixed = notes(graph, **options)
        assert is_fixed and told and all("fc1" in note for note in told)


def test_data_too_small_for_a_scale_are_told() -> None:
    told, is_fixed = notes(network(), X * np.float32(1e-33))
    assert is_fixed and any("x, fc0, relu" in note for note in told)


def test_a_bias_that_drowns_the_data_is_told() -> None:
    told, is_fixed = notes(network(bias=1e5))
    assert is_fixed and told and told[0].startswith("output fc1 is the same for every input, though calibration saw")


@pytest.mark.parametrize("outlier", [1e3, 1e6, 1e9])
def test_an_outlier_that_leaves_nothing_of_the_output_is_told(outlier: float) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 8)))
    weight = np.random.default_rng(SEED + 1).standard_normal((8, 8)).astype(np.float32)
    weight[0, 0] = outlier
    dense = builder.apply(FullyConnected(num_hidden=8, no_bias=True), [x, builder.parameter("w", weight)], "fc")
    graph = builder.graph([builder.apply(SliceAxis(axis=1, begin=1, end=8), [dense], "rest")])
    told, is_fixed = notes(graph, weight={"scales": "layer"})
    assert is_fixed and len(told) == 1 and "output rest" in told[0]
    assert notes(graph) == ([], False)


@pytest.mark.parametrize("size", [1e-20, 1.0, 1e20])
def test_nothing_is_said_of_networks_that_answer(size: float) -> None:
    assert notes(network(first=size)) == ([], False)
    assert notes(network(), X * np.float32(size)) == ([], False)


def test_data_that_are_0_throughout_are_told() -> None:
    told, _ = notes(network(bias=1.0), np.zeros((3, 8), np.float32))
    assert told == [
        "input x was 0 throughout calibration, so that nothing is known of its range; calibrate on samples that are "
        "like those to come"
    ]
