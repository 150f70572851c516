"""Inputs that are integers already: pixels and the like enter without a float."""

from __future__ import annotations

import numpy as np
import pytest

import mrt
from mrt.calibration import Range
from mrt.errors import ConfigError, DataError
from mrt.model import assemble
from mrt.quantization.expand import expand_graph
from mrt.quantization.options import InputConfig, QuantizationConfig
from mrt.symbol.operators.convolution import Convolution
from tests.quantization.networks import chain

CONV = Convolution(kernel=(1, 1), num_filter=2, no_bias=True)
GRAPH = chain((1, 3, 4, 4), (CONV, [np.random.default_rng(0).standard_normal((2, 3, 1, 1))]))
RANGES = {"x": Range(-1.0, 1.0), "s0": Range(-4.0, 4.0)}
PIXELS = {"scale": 1 / 127.5, "zero_point": 128, "dtype": "uint8"}


def model(**inputs: object) -> mrt.QuantizedModel:
    config = QuantizationConfig.model_validate({"inputs": inputs})
    return assemble(expand_graph(GRAPH, RANGES, config), None, RANGES)


def test_pixels_are_taken_as_they_are() -> None:
    quantized = model(x=PIXELS)
    pixels = np.random.default_rng(1).integers(0, 256, (5, 3, 4, 4), dtype=np.uint8)
    np.testing.assert_array_equal(quantized.quantize_inputs(pixels)["x"], pixels)
    assert quantized.graph.by_name["x"].dtype == "uint8"
    real = (pixels.astype(np.float64) - 128) / 127.5
    np.testing.assert_array_equal(quantized.quantize_inputs(real)["x"], pixels)
    got = quantized.dequantize_outputs(quantized.graph.evaluate({"x": pixels[:1]}))[0]
    wanted = GRAPH.evaluate({"x": real[:1].astype(np.float32)})[0]
    assert np.abs(got - wanted).max() < 0.02 * np.abs(wanted).max()


def test_a_compiled_module_takes_them_too() -> None:
    quantized = model(x=PIXELS)
    module = quantized.compile(batch=2)
    pixels = np.random.default_rng(2).integers(0, 256, (5, 3, 4, 4), dtype=np.uint8)
    np.testing.assert_array_equal(module(pixels), module((pixels - np.float64(128)) / 127.5))


def test_what_leaves_the_range_is_refused() -> None:
    quantized = model(x={"scale": 0.1, "dtype": "int16", "range": [-10, 10]})
    with pytest.raises(DataError, match="x holds"):
        quantized.quantize_inputs(np.full((1, 3, 4, 4), 11, np.int16))


def test_an_unknown_input_is_named() -> None:
    with pytest.raises(ConfigError, match=r"quantize.inputs.y .*is no input"):
        model(y=PIXELS)


@pytest.mark.parametrize(
    "wrong", [{"scale": 0.0}, {"scale": float("nan")}, {"zero_point": 300}, {"range": [5, 1]}, {"range": [-1, 9]}]
)
def test_malformed_facts_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="InputConfig"):
        InputConfig.model_validate(wrong)
