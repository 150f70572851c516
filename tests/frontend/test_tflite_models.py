"""Trained networks as TFLite files are those of their ONNX files, in floats and in integers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx_models import run_onnxruntime

import mrt
from mrt.frontend import from_tflite, load_model

COUNTERPARTS = {
    "kws_ref_model_float32": "kws_dscnn",
    "mlperf_resnet8_cifar10_float": "mlperf_resnet8_cifar10",
    "mobilenet_v1_0.25_224_float": "mobilenet_v1_0.25_224",
}
"""The ONNX file of each TFLite file. Images are (N, C, H, W) there, (N, H, W, C) here."""

Load = Callable[[str, str], tuple[np.ndarray, np.ndarray]]


def channels_last(images: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if "mobilenet" in name else []) for name in COUNTERPARTS]
)
def test_real_samples(name: str, data_folder: Path, load_data: Load) -> None:
    """The keyword network's int8 weights stand for the floats that its ONNX file holds."""
    models = data_folder / "models"
    graph = load_model(models / "tflite" / f"{name}.tflite")
    path = models / "onnx" / f"{COUNTERPARTS[name]}.onnx"
    (onnx_input,) = load_model(path).inputs
    for sample in load_data(COUNTERPARTS[name], "test")[0][:3]:
        image = sample[None]
        (found,) = graph.evaluate({graph.inputs[0].name: channels_last(image)})
        (expected,) = run_onnxruntime(str(path), {onnx_input.name: image})
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("name", COUNTERPARTS)
def test_nothing_is_transposed_but_the_input(name: str, data_folder: Path) -> None:
    """Before the first convolution; the rest is that of the ONNX file, whose channels are first."""
    models = data_folder / "models"
    ours = load_model(models / "tflite" / f"{name}.tflite").count_operators()
    theirs = load_model(models / "onnx" / f"{COUNTERPARTS[name]}.onnx").count_operators()
    moves = {"Flatten", "squeeze"}
    assert ours.pop("transpose") == 1
    assert {op: n for op, n in ours.items() if op not in moves} == {
        op: n for op, n in theirs.items() if op not in moves
    }


@pytest.mark.parametrize("name", COUNTERPARTS)
def test_samples_stay_apart(name: str, data_folder: Path) -> None:
    """Nothing that the reader writes holds the batch in it."""
    for symbol in load_model(data_folder / "models" / "tflite" / f"{name}.tflite").operators:
        assert not symbol.operator.batch_obstacle(*(source.type for source in symbol.inputs)), symbol


def test_a_dynamic_batch_is_fixed(data_folder: Path) -> None:
    path = data_folder / "models" / "tflite" / "mlperf_resnet8_cifar10_float.tflite"
    graph = from_tflite(path.read_bytes(), batch=3)
    assert graph.inputs[0].shape == (3, 32, 32, 3)
    assert graph.outputs[0].shape == (3, 10)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTERPARTS)
def test_integers_are_those_of_the_onnx_file(name: str, data_folder: Path, load_data: Load) -> None:
    counterpart = COUNTERPARTS[name]
    calibration, tested = (load_data(counterpart, split)[0][:8] for split in ("calibration", "test"))
    models = data_folder / "models"
    config = mrt.QuantizationConfig(preset="fast")
    ours = mrt.quantize(load_model(models / "tflite" / f"{name}.tflite"), channels_last(calibration), config)
    theirs = mrt.quantize(load_model(models / "onnx" / f"{counterpart}.onnx"), calibration, config)
    mine, yours = ([value for _, value in sorted_by_use(model)] for model in (ours, theirs))
    assert len(mine) == len(yours)
    for a, b in zip(mine, yours, strict=True):
        np.testing.assert_array_equal(a, b)
    for sample in tested[:2]:
        found = ours.graph.evaluate(ours.quantize_inputs(channels_last(sample[None])))
        expected = theirs.graph.evaluate(theirs.quantize_inputs(sample[None]))
        assert [value.dtype.kind for value in found] == ["i"]
        np.testing.assert_array_equal(found[0], expected[0])


def sorted_by_use(model: mrt.QuantizedModel) -> list[tuple[str, np.ndarray]]:
    """The parameters of a model's integer graph in the order in which its operators read them."""
    graph = model.graph
    used = {source.name: graph.value(source) for symbol in graph.operators for source in symbol.inputs}
    return [(name, value) for name, value in used.items() if value is not None]
