"""Averages are sums times a constant that is right at every position."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mrt.errors import GraphError
from mrt.preparation.average_pooling import AveragePoolingToSum
from mrt.symbol import GraphBuilder, TensorType
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.reduce import Mean


def _windows(length, kernel, stride, before, after, full):
    """(start, end) of every window along one axis, in padded coordinates."""
    span = length + before + after - kernel
    count = (math.ceil(span / stride) if full else span // stride) + 1
    return [(i * stride, min(i * stride + kernel, length + before + after)) for i in range(count)]


def _average(x, kernel, stride, pad, full, include_pad):
    """Average pooling of (C, H, W) by loops. MXNet: a window ends where the padded image does."""
    pads = pad if len(pad) == 4 else (*pad, *pad)
    rows = _windows(x.shape[1], kernel[0], stride[0], pads[0], pads[2], full)
    columns = _windows(x.shape[2], kernel[1], stride[1], pads[1], pads[3], full)
    result = np.zeros((x.shape[0], len(rows), len(columns)))
    for c in range(x.shape[0]):
        for i, (top, bottom) in enumerate(rows):
            for j, (left, right) in enumerate(columns):
                total, inside = 0.0, 0
                for h in range(top, bottom):
                    for w in range(left, right):
                        if pads[0] <= h < pads[0] + x.shape[1] and pads[1] <= w < pads[1] + x.shape[2]:
                            total, inside = total + float(x[c, h - pads[0], w - pads[1]]), inside + 1
                count = (bottom - top) * (right - left) if include_pad else inside
                result[c, i, j] = total / count
    return result


@settings(max_examples=150, deadline=None)
@given(
    size=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    pad=st.one_of(st.just(()), st.tuples(*[st.integers(0, 2)] * 2), st.tuples(*[st.integers(0, 2)] * 4)),
    full=st.booleans(),
    include_pad=st.booleans(),
)
def test_every_combination(size, kernel, stride, pad, full, include_pad) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2, 2, *size)))
    operator = Pooling(
        kernel=kernel,
        pool_type="avg",
        stride=stride,
        pad=pad,
        pooling_convention="full" if full else "valid",
        count_include_pad=include_pad,
    )
    try:
        graph = builder.graph([builder.apply(operator, [x], "pool")])
    except GraphError:
        assume(False)
    result = AveragePoolingToSum()(graph)
    total, product = result.operators
    assert (total.operator.pool_type, product.op, product.name) == ("sum", "broadcast_mul", "pool")
    value = np.random.default_rng(0).normal(size=(2, 2, *size)).astype(np.float32)
    found = result.evaluate({"x": value})[0]
    for sample in range(2):
        expected = _average(value[sample], kernel, stride, pad or (0, 0), full, include_pad)
        np.testing.assert_allclose(found[sample], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("attributes", "shape"),
    [
        ({"kernel": (2, 2), "stride": (2, 2)}, (1, 1, 1, 1)),
        ({"kernel": (3, 3), "pad": (1, 1)}, (1, 1, 1, 1)),
        ({"kernel": (3, 3), "pad": (1, 1), "count_include_pad": False}, (1, 1, 6, 6)),
        ({"kernel": (3, 1), "pad": (1, 0), "count_include_pad": False}, (1, 1, 6, 1)),
        ({"kernel": (4, 4), "stride": (4, 4), "pooling_convention": "full"}, (1, 1, 2, 2)),
        ({"global_pool": True}, (1, 1, 1, 1)),
    ],
)
def test_shape_of_the_factor(attributes, shape, assert_same_outputs) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3, 6, 6)))
    graph = builder.graph([builder.apply(Pooling(pool_type="avg", **attributes), [x], "pool")])
    result = AveragePoolingToSum()(graph)
    assert result.outputs[0].inputs[1].shape == shape
    assert_same_outputs(graph, result)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, (1,), (-1, 1), (2, 3)])
def test_mean(axis, keepdims: bool) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2, 3, 4, 5)))
    result = AveragePoolingToSum()(builder.graph([builder.apply(Mean(axis=axis, keepdims=keepdims), [x], "mean")]))
    assert [s.op for s in result.operators] == ["sum", "broadcast_mul"]
    value = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    expected = value.astype(np.float64).mean(axis=axis, keepdims=keepdims)
    np.testing.assert_allclose(result.evaluate({"x": value})[0].reshape(expected.shape), expected, rtol=1e-5, atol=1e-6)


def test_max_pooling_stays() -> None:
    builder = GraphBuilder()
    graph = builder.graph([builder.apply(Pooling(kernel=(2, 2)), [builder.input("x", TensorType((1, 1, 4, 4)))])])
    assert AveragePoolingToSum()(graph).outputs == graph.outputs
