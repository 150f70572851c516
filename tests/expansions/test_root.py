"""The root of a sum of squares: small values beside large ones are not lost, and the integers are what is compiled."""

from __future__ import annotations

import numpy as np

import mrt
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Graph, TensorType
from mrt.symbol.builder import GraphBuilder
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.functions import Sqrt, Square

RNG = np.random.default_rng(11)
WIDE = {"activation": {"bits": 16}}


def magnitude() -> Graph:
    """√(a² + b²) of two inputs."""
    builder = GraphBuilder()
    squares = [builder.apply(Square(), [builder.input(name, TensorType((1, 64)))], f"{name}_square") for name in "ab"]
    return builder.graph([builder.apply(Sqrt(), [builder.apply(ElemwiseAdd(), squares, "power")], "root")])


def feeds() -> dict[str, np.ndarray]:
    """Loud rows and rows a thousandth as loud, below the root of half a step of 12 bits of the power."""
    loud = np.where(np.arange(32) % 2 == 0, 1.0, 1e-3)[:, None]
    return {name: (RNG.standard_normal((32, 64)) * loud).astype(np.float32) for name in "ab"}


def test_small_magnitudes_beside_large_ones() -> None:
    """To a step of the inputs and one of the output, of 16 bits each, and what a root of integers rounds down."""
    graph, given = magnitude(), feeds()
    model = mrt.quantize(graph, given, QuantizationConfig.model_validate({"preset": "mrt", **WIDE}))
    module = model.compile()
    for row in range(4):
        single = {name: array[row : row + 1] for name, array in given.items()}
        integers = model.graph.evaluate(model.quantize_inputs(single))
        found = model.dequantize_outputs(integers)[0]
        wanted = np.hypot(*(array.astype(np.float64) for array in single.values()))
        step = max(np.abs(array).max() for array in given.values()) / 2**15
        assert np.abs(found - wanted).max() < 3 * step
        np.testing.assert_array_equal(module(single), found)
