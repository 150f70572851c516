"""What the tests of the pipeline share: a small network with data, and a run of it."""

from __future__ import annotations

import shutil
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

from mrt.config import RunConfig, load_config
from mrt.pipeline import run_pipeline
from mrt.progress import Reporter

CONFIG = """\
model: {path: net.onnx}
data:
  calibration: {npz: data.npz, x: x, slice: [0, 20]}
  test: {npz: data.npz, x: x, y: y, slice: [20, 47]}
calibrate: {batch_size: 8}
compile: {batch: 4}
evaluate: {check: 5, batch_size: 8}
report: false
output: out
"""
QUICK = CONFIG + "quantize: {preset: fast}\n"
"""The same with integers that are found in the least time, for tests of what a folder holds, whichever they are."""


def weights(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.5, shape).astype(np.float32)


def save_network(path: Path, seed: int = 0) -> None:
    """A convolution, relu, a fully connected layer and a softmax over 5 classes, for float32 [1, 2, 6, 6]."""
    parameters = {
        "w": weights(4, 2, 3, 3, seed=seed),
        "b": weights(4, seed=seed + 1),
        "fc": weights(5, 144, seed=seed + 2),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["conv"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["conv"], ["relu"]),
        helper.make_node("Flatten", ["relu"], ["flat"]),
        helper.make_node("Gemm", ["flat", "fc"], ["logits"], transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 6, 6])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(value, name) for name, value in parameters.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def save_data(path: Path) -> None:
    rng = np.random.default_rng(7)
    np.savez(path, x=rng.normal(size=(47, 2, 6, 6)).astype(np.float32), y=rng.integers(0, 5, 47))


def copied(finished: Path, folder: Path) -> Path:
    """A finished run in another folder.

    Sections hold absolute paths, so the saved stages belong to the first folder: the copy's data is there.
    """
    shutil.copytree(finished, folder)
    (folder / "config.yaml").write_text(QUICK.replace("data.npz", str(finished / "data.npz")))
    return folder


def silent() -> Reporter:
    return Reporter(Console(file=StringIO()))


def run(folder: Path, *overrides: str, **options: Any) -> dict[str, Any] | None:
    return run_pipeline(config_of(folder, *overrides), report=silent(), **options)


def config_of(folder: Path, *overrides: str) -> RunConfig:
    return load_config(folder / "config.yaml", overrides)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def said(folder: Path, *overrides: str, **options: Any) -> str:
    """What a run reports."""
    written = StringIO()
    run_pipeline(config_of(folder, *overrides), report=Reporter(Console(file=written, width=200)), **options)
    return written.getvalue()
