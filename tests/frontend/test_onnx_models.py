"""Trained networks as ONNX files agree with ONNX Runtime on the data that they were trained to read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx_models import run_onnxruntime

from mrt.frontend import load_model

MODELS = {
    "kws_dscnn.onnx": "kws_dscnn",
    "mlperf_resnet8_cifar10.onnx": "mlperf_resnet8_cifar10",
    "resnet20_cifar10.onnx": "resnet20_cifar10",
    "resnet20_cifar10.dyn.onnx": "resnet20_cifar10",
    "mobilenet_v1_0.25_224.onnx": "mobilenet_v1_0.25_224",
    "kwt1_speechcommands12.onnx": "kwt1_speechcommands12",
}


@pytest.mark.parametrize("file", MODELS)
def test_real_samples(file: str, data_folder: Path, load_data: Callable[..., tuple[np.ndarray, np.ndarray]]) -> None:
    path = data_folder / "models" / "onnx" / file
    samples = load_data(MODELS[file], "test")[0][:3]
    graph = load_model(path)
    for sample in samples:
        feeds = {graph.inputs[0].name: sample[None]}
        (found,), (expected,) = graph.evaluate(feeds), run_onnxruntime(str(path), feeds)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_the_autoencoder(data_folder: Path) -> None:
    path = data_folder / "models" / "onnx" / "ad01_fp32.onnx"
    graph = load_model(path)
    feeds = {"input": np.random.default_rng(0).standard_normal((1, 640)).astype(np.float32) * 10}
    np.testing.assert_allclose(graph.evaluate(feeds)[0], run_onnxruntime(str(path), feeds)[0], rtol=1e-3, atol=1e-3)


def test_an_unsimplified_export_folds_to_the_simplified_one(data_folder: Path) -> None:
    folder = data_folder / "models" / "onnx"
    dynamic, static = (load_model(folder / f"resnet20_cifar10{kind}.onnx") for kind in (".dyn", ""))
    assert dynamic.count_operators() == static.count_operators()
    assert load_model(folder / "resnet20_cifar10.dyn.onnx", batch=4).outputs[0].shape == (4, 10)


@pytest.mark.parametrize("file", [file for file in MODELS if not file.startswith("kwt1")])
def test_samples_stay_apart(file: str, data_folder: Path) -> None:
    """Nothing that the reader writes holds the batch in it."""
    for symbol in load_model(data_folder / "models" / "onnx" / file).operators:
        assert not symbol.operator.batch_obstacle(*(source.type for source in symbol.inputs)), symbol


def test_a_transformer_has_its_operators(data_folder: Path) -> None:
    graph = load_model(data_folder / "models" / "onnx" / "kwt1_speechcommands12.onnx")
    counts = graph.count_operators()
    assert counts["LayerNorm"] == 24
    assert counts["softmax"] == 12
    assert counts["batch_dot"] == 24
    assert counts["FullyConnected"] == 36 + 38
