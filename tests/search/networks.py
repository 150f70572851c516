"""What the tests of the search share: a small network with data, and running it by NumPy, which needs no compiling."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mrt.model import QuantizedModel
from mrt.symbol import Array, NumpyRunner

CONFIG = """\
model: {path: net.onnx}
data:
  calibration: {npz: data.npz, x: x, y: y, slice: [0, 40]}
  test: {npz: data.npz, x: x, y: y, slice: [40, 60]}
evaluate: {batch_size: 8}
output: out
"""


def weights(*shape: int, seed: int) -> Array:
    return np.random.default_rng(seed).normal(0, 0.5, shape).astype(np.float32)


def save_network(path: Path) -> None:
    """A convolution, relu, a fully connected layer and a softmax over 3 classes, for float32 [1, 2, 4, 4]."""
    parameters = {"w": weights(3, 2, 3, 3, seed=1), "b": weights(3, seed=2), "fc": weights(3, 12, seed=3)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["conv"]),
        helper.make_node("Relu", ["conv"], ["relu"]),
        helper.make_node("Flatten", ["relu"], ["flat"]),
        helper.make_node("Gemm", ["flat", "fc"], ["logits"], transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 4, 4])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, 3])],
        [numpy_helper.from_array(value, name) for name, value in parameters.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def save_run(folder: Path) -> Path:
    """The network, data and configuration of a run in `folder`; gives the configuration."""
    save_network(folder / "net.onnx")
    random = np.random.default_rng(7)
    np.savez(
        folder / "data.npz", x=random.uniform(-1, 1, (60, 2, 4, 4)).astype(np.float32), y=random.integers(0, 3, 60)
    )
    (folder / "config.yaml").write_text(CONFIG)
    return folder / "config.yaml"


class NumpyModule:
    """What the search asks of a compiled module, by `Graph.evaluate`, sample by sample."""

    def __init__(self, model: QuantizedModel) -> None:
        self._graph = model.graph

    def seconds(self, integers: dict[str, Array]) -> float:
        return 0.0

    def close(self) -> None:
        pass

    def run_integer(self, integers: dict[str, Array]) -> list[Array]:
        count = len(next(iter(integers.values())))
        each = [self._graph.evaluate({n: x[k : k + 1] for n, x in integers.items()}) for k in range(count)]
        return [np.concatenate(outputs) for outputs in zip(*each, strict=True)]


def run_by_numpy(patch: pytest.MonkeyPatch) -> None:
    """Has nothing compiled: float graphs and integer ones run by NumPy."""
    compiled: Callable[..., Any] = lambda model, *_, **__: NumpyModule(model)  # noqa: E731
    patch.setattr("mrt.model.QuantizedModel.compile", compiled)
    patch.setattr("mrt.search.laboratory.default_runner", NumpyRunner)
    patch.setattr("mrt.steps.default_runner", NumpyRunner)
