"""A network with the example's operator, of a domain that ONNX does not know, and what it computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SHAPE = (1, 3, 6, 4)
CONFIG = """\
model: {path: net.onnx}
data:
  calibration: {npz: data.npz}
output: out
"""


def weights() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return tuple(random.standard_normal((4, n, 1, 1)).astype(np.float32) for n in (3, 4))  # type: ignore[return-value]


def save_network(path: Path) -> None:
    """A convolution, a relu, rows turned by two, channels by minus one, a convolution."""
    names = ("w0", "w1")
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"]),
        helper.make_node("Relu", ["c0"], ["r"]),
        helper.make_node("CyclicShift", ["r"], ["rows"], domain="acme", axis=2, shift=2),
        helper.make_node("CyclicShift", ["rows"], ["turned"], domain="acme", axis=-3, shift=-1),
        helper.make_node("Conv", ["turned", "w1"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 6, 4))],
        [numpy_helper.from_array(value, name) for name, value in zip(names, weights(), strict=True)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def reference(x: np.ndarray) -> np.ndarray:
    """What the network computes, elements picked one by one where they are turned."""
    first, second = (w[:, :, 0, 0].astype(np.float64) for w in weights())
    held = np.maximum(np.einsum("oc,nchw->nohw", first, x), 0)
    rows = held[:, :, [(i - 2) % 6 for i in range(6)]]
    turned = rows[:, [(c + 1) % 4 for c in range(4)]]
    return np.einsum("oc,nchw->nohw", second, turned)
