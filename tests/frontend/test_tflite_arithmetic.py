"""Integer networks of TFLite give TensorFlow's integers: those that its interpreter gave, and those of its formulas."""

from __future__ import annotations

import json
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from tflite_files import File, interpreted
from tflite_integer_network import DTYPES, RECORDED, digest, image, network

import mrt
from mrt.frontend import from_tflite
from mrt.frontend.tflite.source import read_model

HALF = Fraction(1, 2)


def integers_of(content: bytes, x: np.ndarray) -> list[np.ndarray]:
    """The outputs of the integer network that MRT makes without data, as the file's own integers."""
    model = mrt.quantize(from_tflite(content))
    outputs = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    stored = read_model(content)
    tensors = [stored.tensors[index] for index in stored.outputs]
    return [
        np.rint(np.float64(value) / np.float64(np.float32(tensor.scales[0])) + tensor.zero_points[0]).astype(int)
        for value, tensor in zip(outputs, tensors, strict=True)
    ]


@pytest.fixture(scope="module")
def recorded() -> dict[str, dict[str, object]]:
    return json.loads(RECORDED.read_text())


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_network_gives_the_integers_of_the_interpreter(dtype: str, recorded: dict[str, dict[str, object]]) -> None:
    """Every tensor of int8 and uint8; of int16 the convolutions, the sum and the averages.

    The dense layer and the softmax of int16 may differ by 1 and by 2 of 32,768: one is rescaled, the other is read from
    tables of TensorFlow's.
    """
    content = network(dtype)
    assert digest(content) == recorded[dtype]["digest"], "record the network anew: see tflite_integer_network.py"
    allowed = (0, 0, 0, 0, 1, 2) if dtype == "int16" else (0,) * 6
    found = integers_of(content, image(dtype))
    for mine, theirs, least in zip(found, recorded[dtype]["outputs"], allowed, strict=True):
        assert np.abs(mine.reshape(-1) - np.asarray(theirs)).max() <= least


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_interpreter_gives_what_is_recorded(dtype: str, recorded: dict[str, dict[str, object]]) -> None:
    """By its older kernels, which round twice: a few integers differ, by little."""
    for found, told in zip(interpreted(network(dtype), [image(dtype)]), recorded[dtype]["outputs"], strict=True):
        assert np.abs(found.reshape(-1).astype(int) - np.asarray(told)).max() <= 3


@pytest.mark.parametrize("bias_scale", [1.0, 1.3, 0.0])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_a_file_says_of_biases_makes_no_difference(dtype: str, bias_scale: float) -> None:
    """They are integers of the accumulator, whatever scale and axis the file says, or none."""
    odd = network(dtype, bias_axis=3, bias_scale=bias_scale)
    for found, expected in zip(integers_of(odd, image(dtype)), integers_of(network(dtype), image(dtype)), strict=True):
        np.testing.assert_array_equal(found, expected)


def pooling(dtype: str, zero: int, padding: int, data: np.ndarray) -> bytes:
    file = File()
    quantized = {"scales": [0.1], "zero_points": [zero]}
    size = (data.shape[1] + 1) // 2
    source, result = file.input(data.shape, dtype, **quantized), file.tensor((1, size, size, 2), dtype, **quantized)
    windows = {"Padding": padding, "StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}
    file.operator("AVERAGE_POOL_2D", [source], [result], "Pool2DOptions", **windows)
    return file.write([result])


@pytest.mark.parametrize(("dtype", "zero"), [("int8", 3), ("int8", -128), ("uint8", 0), ("uint8", 77), ("int16", 0)])
def test_halves_of_averages_go_away_from_the_integer_0(dtype: str, zero: int) -> None:
    """Windows that the border cuts have 1 or 2 elements, others 4; of int16 all have 4."""
    limits, size = np.iinfo(dtype), 16 if dtype == "int16" else 15
    x = np.random.default_rng(3).integers(limits.min, limits.max + 1, (1, size, size, 2)).astype(dtype)
    (found,) = integers_of(pooling(dtype, zero, 0, x), x)
    for row, column, channel in np.ndindex(8, 8, 2):
        window = x[0, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2, channel].astype(int)
        average = Fraction(int(window.sum()), window.size)
        rounded = floor(abs(average) + HALF) * (1 if average >= 0 else -1)
        assert found[0, row, column, channel] == rounded


def test_int16_layers_rescale_by_multipliers_of_15_bits() -> None:
    """TensorFlow's multiplier has 31 bits, of which the lower 16 are rounded off, and rounds the product once."""
    rng = np.random.default_rng(8)
    x = rng.integers(-32768, 32768, (1, 1, 1, 6)).astype(np.int16)
    weight = rng.integers(-127, 128, (40, 1, 1, 6)).astype(np.int8)
    bias = rng.integers(-(10**6), 10**6, 40).astype(np.int64)
    scales, data_scale, scale = rng.uniform(0.001, 0.02, 40).astype(np.float32), 0.0013, 0.0021
    file = File()
    data = file.input(x.shape, "int16", scales=[data_scale], zero_points=[0])
    kernel = file.constant(weight, scales=scales, zero_points=[0] * 40, axis=0)
    shift = file.constant(bias, scales=scales * np.float32(data_scale), zero_points=[0] * 40)
    result = file.tensor((1, 1, 1, 40), "int16", scales=[scale], zero_points=[0])
    window = {"Padding": 1, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    file.operator("CONV_2D", [data, kernel, shift], [result], "Conv2DOptions", **window)
    (found,) = integers_of(file.write([result]), x)
    sums = weight[:, 0, 0].astype(int) @ x.reshape(-1).astype(int) + bias
    for channel in range(40):
        factor = float(np.float64(np.float32(data_scale)) * np.float64(scales[channel]) / np.float32(scale))
        fraction, exponent = np.frexp(factor)
        long = round(float(fraction) * 2**31)
        short = (long + 2**15) >> 16 if long < 0x7FFF0000 else 0x7FFF
        expected = floor(int(sums[channel]) * short * Fraction(2) ** (int(exponent) - 15) + HALF)
        assert found[0, 0, 0, channel] == np.clip(expected, -32768, 32767)


def test_a_softmax_before_a_quantizer_reaches_1_whatever_calibration_saw() -> None:
    """The network says where it saturates; samples do not."""
    file = File()
    data = file.input((1, 4), "int8", scales=[0.1], zero_points=[0])
    result = file.tensor((1, 4), "int8", scales=[1 / 256], zero_points=[-128])
    file.operator("SOFTMAX", [data], [result], "SoftmaxOptions", Beta=1.0)
    model = mrt.quantize(from_tflite(file.write([result])), np.zeros((1, 4), np.int8))
    x = np.int8([[127, -128, -128, -128]])
    (found,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    np.testing.assert_array_equal(found, [[255 / 256, 0, 0, 0]])
