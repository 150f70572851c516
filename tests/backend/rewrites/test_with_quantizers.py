"""A quantized model as one graph, from real inputs to real outputs."""

from __future__ import annotations

import numpy as np
from compiled import op

from mrt.backend.rewrites.known_bounds import known_bounds
from mrt.backend.rewrites.with_quantizers import with_quantizers
from mrt.symbol import GraphBuilder, Interval, TensorType
from mrt.symbol.quantized_tensor import TensorQuantization


def test_operators_keep_their_names_between_real_ends() -> None:
    """Also those that are called as the ends would be; bounds are known by these names."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2, 4), "int8"))
    moved = builder.apply(
        op("broadcast_add"), [x, builder.parameter("x_zero_point", np.array([[3]], np.int8))], "x_scale"
    )
    graph = builder.graph([builder.apply(op("relu"), [moved], "x_quantized")])
    entry = TensorQuantization("x", (2, 4), "int8", 0.5, 1, -128, 127)
    output = TensorQuantization("x_quantized", (2, 4), "int32", 0.5, 0, 0, 130)
    real = with_quantizers(graph, [entry], [output], None)
    assert {s.name: s.op for s in real.operators}.items() >= {s.name: s.op for s in graph.operators}.items()
    before = known_bounds(graph, {"x": Interval.of(-128, 127, (2, 4))})
    known = known_bounds(real, before)
    assert known["x_zero_point"] is before["x_zero_point"]
    assert (known["x_quantized"].min, known["x_quantized"].max) == (0, 130)
    (found,) = real.evaluate({"x": np.full((2, 4), 4.0, np.float32)})
    np.testing.assert_array_equal(found, np.full((2, 4), 0.5 * (4 / 0.5 + 1 + 3)))
