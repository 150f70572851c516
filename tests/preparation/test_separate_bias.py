"""Layers keep their product; the bias is a broadcast_add of full rank."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.preparation.separate_bias import SeparateBias
from mrt.symbol import Graph, GraphBuilder, Operator, TensorType
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.linear import FullyConnected

LAYERS = [
    (Convolution(kernel=(3,), num_filter=2), (1, 4, 6), (2, 4, 3), (1, 2, 1)),
    (Convolution(kernel=(3, 3), num_filter=2), (1, 4, 6, 6), (2, 4, 3, 3), (1, 2, 1, 1)),
    (Convolution(kernel=(1, 1, 1), num_filter=2), (1, 4, 2, 2, 2), (2, 4, 1, 1, 1), (1, 2, 1, 1, 1)),
    (FullyConnected(num_hidden=2), (1, 3, 4), (2, 12), (1, 2)),
    (FullyConnected(num_hidden=2, flatten=False), (1, 3, 4), (2, 4), (1, 1, 2)),
]


def _graph(operator: Operator, data: tuple[int, ...], weight: tuple[int, ...], bias: list[float]) -> Graph:
    builder = GraphBuilder()
    random = np.random.default_rng(0)
    inputs = [builder.input("x", TensorType(data)), builder.parameter("w", random.normal(size=weight).astype("f"))]
    return builder.graph([builder.apply(operator, [*inputs, builder.parameter("b", np.array(bias, "f"))], "layer")])


@pytest.mark.parametrize(("operator", "data", "weight", "bias"), LAYERS, ids=lambda v: str(v))
def test_bias_has_full_rank(operator, data, weight, bias, assert_same_outputs) -> None:
    graph = _graph(operator, data, weight, [0.5, -2.0])
    result = SeparateBias()(graph)
    product, total = result.operators
    assert (product.name, product.op, product.operator.no_bias) == ("layer_product", operator.op, True)
    assert (total.name, total.op, total.inputs[1].shape) == ("layer", "broadcast_add", bias)
    assert_same_outputs(graph, result)


def test_zero_bias_vanishes(assert_same_outputs) -> None:
    graph = _graph(*LAYERS[1][:3], [0.0, 0.0])
    result = SeparateBias()(graph)
    assert [s.name for s in result.operators] == ["layer"] and list(result.parameters) == ["w"]
    assert_same_outputs(graph, result)


def test_shared_bias(assert_same_outputs) -> None:
    builder = GraphBuilder()
    x, w = builder.input("x", TensorType((1, 3))), builder.parameter("w", np.ones((2, 3), np.float32))
    b = builder.parameter("b", np.array([1, 2], np.float32))
    graph = builder.graph([builder.apply(FullyConnected(num_hidden=2), [x, w, b], n) for n in ("one", "two")])
    result = SeparateBias()(graph)
    assert set(result.parameters) == {"w", "one_bias", "two_bias"}
    assert_same_outputs(graph, result)


def test_bias_that_is_no_parameter_is_refused() -> None:
    builder = GraphBuilder()
    x, w = builder.input("x", TensorType((1, 3))), builder.parameter("w", np.ones((2, 3), np.float32))
    graph = builder.graph([builder.apply(FullyConnected(num_hidden=2), [x, w, builder.input("b", TensorType((2,)))])])
    result = SeparateBias().run(graph)
    assert result.graph.outputs == graph.outputs and "not a parameter" in result.refusals[0].reason
