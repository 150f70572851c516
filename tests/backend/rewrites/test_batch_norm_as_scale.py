"""Batch normalisations by constants are products and sums, fused with the layer before."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Bundle, op

from mrt.backend.explain import explain
from mrt.backend.rewrites.batch_norm_as_scale import BatchNormAsScale
from mrt.symbol import Graph, GraphBuilder, Runner, TensorType


def normalized(axis: int, fix_gamma: bool, computed: bool = False, least: float = 0.0) -> Graph:
    random, builder = np.random.default_rng(0), GraphBuilder()
    x = builder.input("x", TensorType((2, 5, 7), "float32"))
    channels = x.shape[axis]
    gamma, beta, mean = (builder.parameter("p", random.normal(size=channels).astype(np.float32)) for _ in range(3))
    variance = builder.parameter("v", random.uniform(least, least + 2, channels).astype(np.float32))
    if computed:
        variance = builder.apply(op("abs"), [builder.input("v_in", TensorType((channels,), "float32"))])
    layer = op("BatchNorm", axis=axis, fix_gamma=fix_gamma, eps=1e-3)
    return builder.graph([builder.apply(layer, [x, gamma, beta, mean, variance], "y")])


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("fix_gamma", [False, True])
def test_it_is_a_product_and_a_sum(axis: int, fix_gamma: bool) -> None:
    before = normalized(axis, fix_gamma)
    after = BatchNormAsScale().run(before).graph
    assert [symbol.op for symbol in after.operators] == ["broadcast_mul", "broadcast_add"]
    feeds = {"x": np.random.default_rng(1).normal(size=(2, 5, 7)).astype(np.float32)}
    np.testing.assert_allclose(after.evaluate(feeds)[0], before.evaluate(feeds)[0], rtol=1e-5, atol=1e-5)


def test_one_whose_variance_is_computed_is_left_alone() -> None:
    before = normalized(1, False, computed=True)
    result = BatchNormAsScale().run(before)
    assert result.graph is before
    (refusal,) = result.refusals
    assert (refusal.symbol, refusal.reason) == ("y", "its mean, variance, gamma or beta is computed")


def test_one_of_a_negative_variance_is_left_alone() -> None:
    before = normalized(1, False, least=-3.0)
    result = BatchNormAsScale().run(before)
    assert result.graph is before
    assert "its variance is negative" in result.refusals[0].reason


def test_it_is_computed_with_a_convolution(runner: Runner) -> None:
    bundle = Bundle()
    x, weight = bundle.input(bundle.floats(1, 3, 6, 7)), bundle.parameter(bundle.floats(5, 3, 3, 3))
    product = bundle.hidden("Convolution", x, weight, kernel=(3, 3), num_filter=5, no_bias=True)
    values = [bundle.parameter(bundle.floats(5)) for _ in range(3)]
    values.append(bundle.parameter(np.abs(bundle.floats(5))))
    bundle.add("BatchNorm", bundle.hidden("relu", product), *values, fix_gamma=False)
    names = [tuple(call.operators) for call in explain(bundle.graph(), []).calls]
    assert ("Convolution", "relu", "broadcast_mul", "broadcast_add") in names
    bundle.check(1e-4, runner)
