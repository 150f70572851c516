"""Whole networks, quantized and exported: ONNX Runtime gives the integers that the certificate is about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from exported import assert_same, run

import mrt
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, NumpyRunner

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
SAMPLES = 3


@pytest.mark.parametrize("quantizer", ["symmetric", "affine"])
def test_digits(quantizer: str, tmp_path: Path) -> None:
    """Every test sample is read as by the integer graph, by a model for 500 samples at once."""
    with np.load(DIGITS / "data.npz", allow_pickle=False) as data:
        calibration, x = (data[f"x_{split}"].astype(np.float32) / 16 for split in ("calibration", "test"))
        labels = data["y_test"]
    config = QuantizationConfig.model_validate({"activation": {"quantizer": quantizer}})
    model = mrt.quantize(mrt.load_model(DIGITS / "digits.onnx"), calibration, config, runner=NumpyRunner())
    model.to_onnx(tmp_path / "digits.onnx", batch=len(x))
    feeds = model.quantize_inputs(x)
    written = onnx.load(tmp_path / "digits.onnx")
    assert_same(model.rebatched(len(x)).graph, written, [feeds])
    ((found,),) = run(written, [feeds])
    assert np.mean(found.argmax(axis=1) == labels) > 0.97


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 12])
@pytest.mark.parametrize("name", ["resnet20_cifar10", "kws_dscnn", "kwt1_speechcommands12"])
def test_networks(
    name: str, bits: int, tmp_path: Path, data_folder: Path, load_data: Callable[[str, str], tuple[Array, Array]]
) -> None:
    """Ordinary inputs, and all at the ends of their ranges."""
    config = QuantizationConfig.model_validate({"activation": {"bits": bits}, "weight": {"bits": bits}})
    graph = mrt.load_model(data_folder / "models" / "onnx" / f"{name}.onnx")
    model = mrt.quantize(graph, [load_data(name, "calibration")[0][:4]], config)
    model.to_onnx(tmp_path / "net.onnx")
    x = load_data(name, "test")[0][:SAMPLES]
    ordinary = [model.quantize_inputs(sample[None]) for sample in x]
    (entry,) = model.inputs
    ends = [{entry.name: np.full(entry.shape, end, entry.dtype)} for end in (entry.lo, entry.hi)]
    assert_same(model.graph, onnx.load(tmp_path / "net.onnx"), [*ordinary, *ends])
