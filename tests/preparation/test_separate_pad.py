"""Convolutions do not pad; nested pads are one."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.preparation.separate_pad import SeparatePad
from mrt.symbol import GraphBuilder, Symbol, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling


def _convolution(builder: GraphBuilder, data: Symbol, **attributes) -> Symbol:
    weight = np.random.default_rng(0).normal(size=(2, data.shape[1], 3, 3)).astype(np.float32)
    operator = Convolution(kernel=(3, 3), num_filter=2, no_bias=True, **attributes)
    return builder.apply(operator, [data, builder.parameter("w", weight)], "conv")


@pytest.mark.parametrize("attributes", [{"pad": (1, 2)}, {"pad": (2, 2), "dilate": (2, 2), "stride": (2, 1)}])
def test_pad_before_the_convolution(attributes, assert_same_outputs) -> None:
    builder = GraphBuilder()
    graph = builder.graph([_convolution(builder, builder.input("x", TensorType((1, 3, 7, 6))), **attributes)])
    result = SeparatePad()(graph)
    pad, conv = result.operators
    h, w = attributes["pad"]
    assert pad.operator == Pad(pad_width=(0, 0, 0, 0, h, h, w, w)) and pad.name == "conv_pad"
    assert conv.name == "conv" and not any(conv.operator.pad)
    assert_same_outputs(graph, result)


def test_joins_an_asymmetric_pad(assert_same_outputs) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3, 7, 6)))
    first = builder.apply(Pad(pad_width=(0, 0, 0, 0, 0, 1, 2, 0)), [x], "first")
    second = builder.apply(Pad(pad_width=(0, 0, 0, 0, 1, 0, 0, 0)), [first], "second")
    graph = builder.graph([_convolution(builder, second, pad=(1, 1))])
    result = SeparatePad()(graph)
    assert [s.op for s in result.operators] == ["Pad", "Convolution"]
    assert result.operators[0].operator.pad_width == (0, 0, 0, 0, 2, 2, 3, 1)
    assert_same_outputs(graph, result)


@pytest.mark.parametrize("other", [{"mode": "edge"}, {"constant_value": 1.0}])
def test_other_pads_stay(other, assert_same_outputs) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3, 7, 6)))
    padded = builder.apply(Pad(pad_width=(0, 0, 0, 0, 1, 1, 1, 1), **other), [x])
    graph = builder.graph([_convolution(builder, padded, pad=(1, 1))])
    result = SeparatePad()(graph)
    assert [s.op for s in result.operators] == ["Pad", "Pad", "Convolution"]
    assert_same_outputs(graph, result)


def test_pad_that_others_read_and_pooling_stay(assert_same_outputs) -> None:
    builder = GraphBuilder()
    padded = builder.apply(Pad(pad_width=(0, 0, 0, 0, 1, 1, 1, 1)), [builder.input("x", TensorType((1, 3, 7, 6)))])
    pooled = builder.apply(Pooling(kernel=(3, 3), pad=(1, 1)), [padded], "pool")
    graph = builder.graph([_convolution(builder, padded, pad=(1, 1)), pooled, builder.apply(Relu(), [padded])])
    result = SeparatePad()(graph)
    assert result.count_operators()["Pad"] == 2 and result.by_name["pool"] is graph.by_name["pool"]
    assert_same_outputs(graph, result)
