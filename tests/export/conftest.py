"""What tests of every format take."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import mrt
from mrt.model import QuantizedModel, assemble
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import Array, NumpyRunner
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.linear import FullyConnected
from tests.quantization.networks import chain, quantize_and_run

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


@pytest.fixture(scope="session")
def model() -> QuantizedModel:
    """A convolution, a rectifier and a dense layer for [1, 2, 5, 5]."""
    random = np.random.default_rng(0)
    graph = chain(
        (1, 2, 5, 5),
        (Convolution((3, 3), 4, no_bias=True), [random.standard_normal((4, 2, 3, 3))]),
        (Relu(), []),
        (FullyConnected(3, no_bias=True), [random.standard_normal((3, 36))]),
    )
    samples = [{"x": random.standard_normal((1, 2, 5, 5)).astype(np.float32)} for _ in range(4)]
    config = QuantizationConfig.model_validate({"activation": {"quantizer": "affine"}})
    return assemble(quantize_and_run(graph, samples, config).integer, None, {})


@pytest.fixture(scope="session")
def network(
    data_folder: Path, load_data: Callable[[str, str], tuple[Array, Array]]
) -> Callable[[str, int], tuple[QuantizedModel, list[dict[str, Array]]]]:
    """From the name of a trained network and a width to its integers and three test samples of these: made once, since
    that takes much longer than any export."""

    @cache
    def made(name: str, bits: int) -> tuple[QuantizedModel, list[dict[str, Array]]]:
        options = {"preset": "fast", "activation": {"bits": bits}, "weight": {"bits": bits}}
        config = QuantizationConfig.model_validate(options)
        graph = mrt.load_model(data_folder / "models" / "onnx" / f"{name}.onnx")
        model = mrt.quantize(graph, [load_data(name, "calibration")[0][:4]], config).rebatched(1)
        return model, [model.quantize_inputs(sample[None]) for sample in load_data(name, "test")[0][:3]]

    return made


@pytest.fixture(scope="session")
def digits() -> Callable[[str], tuple[QuantizedModel, Array, Array]]:
    """From the quantizer of activations to the digits network, its test samples and their labels."""

    @cache
    def made(quantizer: str) -> tuple[QuantizedModel, Array, Array]:
        with np.load(DIGITS / "data.npz", allow_pickle=False) as data:
            calibration, x = (data[f"x_{split}"].astype(np.float32) / 16 for split in ("calibration", "test"))
            labels = data["y_test"]
        config = QuantizationConfig.model_validate({"activation": {"quantizer": quantizer}})
        model = mrt.quantize(mrt.load_model(DIGITS / "digits.onnx"), calibration, config, runner=NumpyRunner())
        return model.rebatched(1), x, labels

    return made
