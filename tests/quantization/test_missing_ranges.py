"""Ranges that follow from those of other tensors need no data; what does not follow is named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mrt.errors import QuantizationError
from mrt.quantization.expand import expand_graph
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType, run_passes
from mrt.symbol.operators.activation import Clip, Relu, Sigmoid
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.linear import BatchDot
from mrt.symbol.operators.normalization import Softmax
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.transform import Concat, SliceAxis
from tests.matrix import NORMAL_FORM
from tests.quantization.networks import observe, quantize_and_run, random_samples

Network = Callable[[GraphBuilder, Symbol, Symbol], Symbol]


def layer(builder: GraphBuilder, data: Symbol) -> Symbol:
    weight = np.random.default_rng(data.shape[1]).standard_normal((4, data.shape[1], 1, 1)).astype(np.float32)
    return builder.apply(Convolution((1, 1), 4, no_bias=True), [data, builder.parameter("w", weight)])


FOLLOWING: dict[str, Network] = {
    "average": lambda b, x, y: layer(b, b.apply(Pooling((2, 2), pool_type="avg"), [x])),
    "maximum": lambda b, x, y: layer(b, b.apply(Pooling((2, 2)), [b.apply(Relu(), [x])])),
    "function": lambda b, x, y: layer(b, b.apply(Sigmoid(), [layer(b, x)])),
    "softmax": lambda b, x, y: layer(b, b.apply(Softmax(axis=1), [x])),
    "limits": lambda b, x, y: layer(b, b.apply(Clip(0.0, 6.0), [layer(b, x)])),
    "sum": lambda b, x, y: layer(b, b.apply(ElemwiseAdd(), [x, y])),
    "parts": lambda b, x, y: layer(b, b.apply(SliceAxis(1, 1, 6), [b.apply(Concat(), [x, y])])),
}
UNKNOWN: dict[str, Network] = {
    "layer": lambda b, x, y: layer(b, b.apply(Relu(), [layer(b, x)], "wanted")),
    "products": lambda b, x, y: b.apply(Softmax(), [b.apply(BatchDot(), [x, y], "wanted")]),
}


def network(make: Network) -> Graph:
    builder = GraphBuilder()
    x, y = (builder.input(name, TensorType((1, 4, 6, 6))) for name in "xy")
    return run_passes(builder.graph([make(builder, x, y)]), NORMAL_FORM).graph


@pytest.mark.parametrize("name", FOLLOWING)
def test_what_follows_needs_no_data(name: str) -> None:
    """Of the inputs alone the ranges are known, and the last layer's sums are brought to what is observed of them."""
    graph = network(FOLLOWING[name])
    samples = random_samples(graph)
    seen = observe(graph, samples)
    known = {name: seen[name] for name in ("x", "y", graph.outputs[0].name)}
    with_all = quantize_and_run(graph, samples, observed=seen).relative_error
    assert quantize_and_run(graph, samples, observed=known).relative_error < max(4 * with_all, 0.04)


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_does_not_follow_is_named(name: str) -> None:
    graph = network(UNKNOWN[name])
    seen = observe(graph, random_samples(graph))
    with pytest.raises(QuantizationError, match="is not known without data: wanted; "):
        expand_graph(graph, {name: seen[name] for name in ("x", "y")}, QuantizationConfig())


def test_an_input_needs_a_range() -> None:
    graph = network(FOLLOWING["sum"])
    with pytest.raises(QuantizationError, match=r"y \(null\) has no range; calibrate it first"):
        expand_graph(graph, {"x": observe(graph, random_samples(graph))["x"]}, QuantizationConfig())
