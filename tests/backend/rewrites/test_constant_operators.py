"""What depends on parameters alone is computed when a network is compiled, and read as any other parameter."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import assert_same_values, op

from mrt.backend import TvmRunner
from mrt.backend.rewrites.constant_operators import ConstantOperators
from mrt.symbol import Graph, GraphBuilder, TensorType

RNG = np.random.default_rng(3)


def dequantized(is_output: bool = False, channels: int = 16) -> Graph:
    """A convolution whose weight and bias are integers with scales, as networks that bring their quantization have."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, channels, 6, 6)))
    integers = [RNG.integers(-127, 128, (channels, channels, 3, 3)).astype(np.int8), np.arange(channels, dtype="int32")]
    made = []
    for name, value in zip(("weight", "bias"), integers, strict=True):
        each = (channels, *(1,) * (value.ndim - 1))
        scale = builder.parameter(f"{name}_scale", RNG.uniform(0.001, 0.01, each).astype(np.float32))
        grid = [builder.parameter(f"{name}_integers", value), scale, builder.parameter(f"{name}_zero", 0 * value[:1])]
        made.append(builder.apply(op("dequantize"), grid, name))
    convolution = op("Convolution", kernel=(3, 3), num_filter=channels)
    sums = builder.apply(convolution, [x, *made], "sums")
    return builder.graph([builder.apply(op("relu"), [sums]), *made[:is_output]])


@pytest.mark.parametrize("is_output", [False, True])
def test_dequantized_weights_are_parameters(is_output: bool) -> None:
    before = dequantized(is_output)
    after = ConstantOperators().run(before).graph
    names = [symbol.name for symbol in after.operators]
    assert ("weight" in names, "bias" in names) == (is_output, False), "an output is computed"
    x = {"x": RNG.standard_normal((1, 16, 6, 6)).astype(np.float32)}
    for found in (after.evaluate(x), TvmRunner().prepare(before)(x)):
        for wanted, value in zip(before.evaluate(x), found, strict=True):
            np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)


def test_what_is_made_of_such_is_a_parameter_too_but_nothing_larger() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((4, 6), "int32"))
    a, b = (builder.parameter(name, np.arange(6, dtype=np.int32).reshape(1, 6)) for name in "ab")
    total = builder.apply(op("broadcast_add"), [a, b], "total")
    turned = builder.apply(op("broadcast_mul"), [total, b], "square")
    tiled = builder.apply(op("tile", reps=(4, 1)), [turned], "tiled")
    before = builder.graph([builder.apply(op("broadcast_add"), [x, tiled])])
    after = ConstantOperators().run(before).graph
    assert [symbol.op for symbol in after.operators] == ["tile", "broadcast_add"]
    feeds = {"x": RNG.integers(-9, 9, (4, 6)).astype(np.int32)}
    assert_same_values(before, after.evaluate(feeds), before.evaluate(feeds))
    assert_same_values(before, TvmRunner().prepare(before)(feeds), before.evaluate(feeds))
