"""A network of one convolution, and what NumPy makes of some samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mrt.backend import compile_model
from mrt.backend.tuning.tuner import Tuner
from mrt.compilation import Target
from mrt.runtime import THIS_DEVICE, Device, Module
from mrt.symbol import Graph, GraphBuilder, TensorType, find_operator
from mrt.symbol.quantized_tensor import TensorQuantization

BATCH = 2


def graph_of() -> Graph:
    """A convolution of 4 to 8 channels and its sums in int32, on [2, 4, 6, 6]."""
    random, builder = np.random.default_rng(0), GraphBuilder()
    x = builder.input("x", TensorType((BATCH, 4, 6, 6), "uint8"))
    weight = builder.parameter("w", random.integers(-127, 128, (8, 4, 3, 3)).astype(np.int8))
    convolution = find_operator("Convolution")(kernel=(3, 3), num_filter=8, no_bias=True)
    return builder.graph([builder.apply(convolution, [x, weight], "y")])


GRAPH = graph_of()
SAMPLES = np.random.default_rng(1).integers(0, 256, (5, 4, 6, 6)).astype(np.uint8)


def expected() -> np.ndarray:
    """The integers of all samples, by `Graph.evaluate`."""
    padded = np.concatenate([SAMPLES, SAMPLES[:1]])
    pairs = (GRAPH.evaluate({"x": padded[start : start + BATCH]})[0] for start in range(0, len(padded), BATCH))
    return np.concatenate(list(pairs))[: len(SAMPLES)]


def compiled(target: Target, device: Device = THIS_DEVICE, tuner: Tuner | None = None) -> Module:
    x, y = GRAPH.inputs[0].shape, GRAPH.outputs[0].shape
    inputs = (TensorQuantization("x", x, "uint8", 0.5, 3, 0, 255),)
    outputs = (TensorQuantization("y", y, "int32", 0.25, 0, -(2**31), 2**31 - 1),)
    return compile_model(GRAPH, inputs, outputs, None, "0" * 64, target, tuner, device=device)


def saved(folder: Path) -> Path:
    path = folder / "model.so"
    compiled("native").save(path)
    return path
