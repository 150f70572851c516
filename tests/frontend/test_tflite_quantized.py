"""TFLite networks of integers: each tensor is rounded to what its integers stand for, as plain NumPy has it."""

from __future__ import annotations

import numpy as np
import pytest
from tflite_files import File

from mrt.frontend import from_tflite
from mrt.symbol import Graph
from mrt.symbol.operators.integer import Dequantize

RNG = np.random.default_rng(11)
CONV = {"Padding": 1, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
POOL = {"Padding": 1, "StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}
RELU6 = 3
SCALES = {"hidden": 6 / 255, "sum": 0.04, "result": 0.25}


def rounded(x: np.ndarray, dtype: str, scale: float, zero: int) -> np.ndarray:
    """What integers of a dtype make of real numbers."""
    limits = np.iinfo(dtype)
    return (np.clip(np.rint(x / scale) + zero, limits.min, limits.max) - zero) * np.float32(scale)


class Network:
    """A convolution with relu6, a pooling, the sum with a constant, and a dense layer, on images (N, H, W, C)."""

    def __init__(self, dtype: str) -> None:
        limits = np.iinfo(dtype)
        self.dtype, self.zero = dtype, int(limits.min if dtype == "int8" else 0)
        self.x = RNG.integers(limits.min, limits.max + 1, (1, 4, 4, 3)).astype(dtype)
        self.kernel = RNG.integers(-127, 128, (5, 1, 1, 3)).astype(np.int8)
        self.kernel_scales = np.float32([0.01, 0.02, 0.005, 0.03, 0.01])
        self.bias = RNG.integers(-2000, 2000, 5).astype(np.int32)
        self.addend = RNG.integers(0, 100, (1, 1, 1, 5)).astype(dtype)
        self.dense = RNG.integers(-127, 128, (2, 20)).astype(np.int8)

    def file(self, input_scale: float) -> bytes:
        file, zero, scales = File(), [self.zero], SCALES
        data = file.input(self.x.shape, self.dtype, scales=[input_scale], zero_points=[3])
        kernel = file.constant(self.kernel, scales=self.kernel_scales, zero_points=[0] * 5, axis=0)
        bias = file.constant(self.bias, scales=input_scale * self.kernel_scales, zero_points=[0] * 5, axis=0)
        hidden, pooled = (
            file.tensor((1, size, size, 5), self.dtype, scales=[scales["hidden"]], zero_points=zero) for size in (4, 2)
        )
        total, rows = (
            file.tensor(shape, self.dtype, scales=[scales["sum"]], zero_points=zero)
            for shape in ((1, 2, 2, 5), (1, 20))
        )
        result = file.tensor((1, 2), self.dtype, scales=[scales["result"]], zero_points=[1])
        addend = file.constant(self.addend, scales=[0.0173], zero_points=[5])
        dense = file.constant(self.dense, scales=[0.02], zero_points=[0])
        file.operator("CONV_2D", [data, kernel, bias], [hidden], "Conv2DOptions", **CONV, FusedActivationFunction=RELU6)
        file.operator("MAX_POOL_2D", [hidden], [pooled], "Pool2DOptions", **POOL)
        file.operator("ADD", [pooled, addend], [total], "AddOptions")
        file.operator("RESHAPE", [total, file.constant(np.int32([1, 20]))], [rows], "ReshapeOptions")
        file.operator("FULLY_CONNECTED", [rows, dense, -1], [result], "FullyConnectedOptions")
        return file.write([result])

    def expected(self, input_scale: float) -> np.ndarray:
        scales = SCALES
        x = (self.x.astype(np.float64) - 3) * np.float32(input_scale)
        weight = self.kernel[:, 0, 0] * self.kernel_scales[:, None].astype(np.float64)
        hidden = x @ weight.T + self.bias * (input_scale * self.kernel_scales.astype(np.float64))
        hidden = rounded(np.clip(hidden, 0, 6), self.dtype, scales["hidden"], self.zero)
        pooled = hidden.reshape(1, 2, 2, 2, 2, 5).max(axis=(2, 4))
        total = rounded(pooled + (self.addend - 5.0) * np.float32(0.0173), self.dtype, scales["sum"], self.zero)
        return rounded(
            total.reshape(1, 20) @ (self.dense.T * np.float64(np.float32(0.02))), self.dtype, scales["result"], 1
        )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_every_tensor_is_rounded(dtype: str) -> None:
    network, input_scale = Network(dtype), 0.02 if dtype != "int16" else 0.0001
    graph = from_tflite(network.file(input_scale))
    assert graph.inputs[0].dtype == dtype
    (found,) = graph.evaluate({graph.inputs[0].name: network.x})
    np.testing.assert_allclose(found, network.expected(input_scale), atol=1e-6)


def constants_of(graph: Graph, name: str) -> list[np.ndarray]:
    """Integers, scales and zero points of the weight of the symbol that is called so."""
    weight = graph.by_name[name].inputs[1]
    assert isinstance(weight.operator, Dequantize)
    return [graph.parameters[symbol.name] for symbol in weight.inputs]


def test_weights_stay_the_integers_that_they_are() -> None:
    """In the order of axes that the layer needs, scales along the outputs; the bias at its own."""
    network = Network("int8")
    graph = from_tflite(network.file(0.02))
    (layer,) = (symbol for symbol in graph.operators if symbol.op == "Convolution")
    integers, scales, zeros = constants_of(graph, layer.name)
    np.testing.assert_array_equal(integers, network.kernel.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(scales, network.kernel_scales.reshape(5, 1, 1, 1))
    assert not zeros.any()
    bias = layer.inputs[2]
    np.testing.assert_array_equal(graph.parameters[bias.inputs[0].name], network.bias)


def test_images_have_one_transpose() -> None:
    """Rounding does not keep transposes apart: there is one behind the input and one before the dense layer."""
    graph = from_tflite(Network("int8").file(0.02))
    assert sum(symbol.op == "transpose" for symbol in graph.operators) == 2


def test_floats_at_both_ends() -> None:
    """QUANTIZE and DEQUANTIZE round what lies between them, and nothing else."""
    file = File()
    data, hidden, result = file.input((4,)), file.tensor((4,), "int8", scales=[0.5], zero_points=[1]), file.tensor((4,))
    file.operator("QUANTIZE", [data], [hidden])
    file.operator("DEQUANTIZE", [hidden], [result])
    graph = from_tflite(file.write([result]))
    assert [symbol.op for symbol in graph.operators] == ["quantize", "dequantize"]
    x = np.float32([0.2, 0.3, -100, 100])
    np.testing.assert_array_equal(graph.evaluate({graph.inputs[0].name: x})[0], [0, 0.5, -64.5, 63])


def test_weights_of_float_networks_are_floats() -> None:
    """Where activations are floats, integers only store what the weights are."""
    file = File()
    weight = file.constant(np.int8([[1, 2], [3, 4]]), scales=[0.5], zero_points=[0])
    data, result = file.input((1, 2)), file.tensor((1, 2))
    file.operator("FULLY_CONNECTED", [data, weight, -1], [result], "FullyConnectedOptions")
    graph = from_tflite(file.write([result]))
    assert [symbol.op for symbol in graph.operators] == ["FullyConnected"]
