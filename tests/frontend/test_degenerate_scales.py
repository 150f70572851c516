"""Quantized networks with channels and operands that are always 0, and with scales and biases at their ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from onnx_models import make_model
from tflite_files import File

import mrt
from mrt.backend import TvmRunner
from mrt.certificate import verify
from mrt.frontend import from_tflite
from mrt.frontend.onnx import from_onnx
from mrt.model import QuantizedModel
from mrt.symbol import Array, Graph

RNG = np.random.default_rng(3)
IMAGE = (1, 16, 16, 3)
"""As many pixels as int8 has values."""
STEP, ZERO = 0.0213, -3
"""Scale and zero point of the input."""
CONV = {"Padding": 1, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
MOST, LEAST = 2**31 - 1, -(2**31)
FUSED = {"none": (0, -np.inf, np.inf), "relu": (1, 0.0, np.inf), "relu6": (3, 0.0, 6.0)}


@dataclass(frozen=True)
class Layer:
    """A layer of three output channels; the second is the one that matters.

    scale: of the second's weights. pruned: the channels whose weights are all 0. out: scale and zero point of the
    result.
    """

    scale: float = 0.0203
    pruned: Sequence[int] = (1,)
    bias: Sequence[int] = (100, 0, 3)
    out: tuple[float, int] = (0.0317, -128)

    @property
    def scales(self) -> Array:
        return np.float32([0.0113, self.scale, 0.0047])

    def weight(self, shape: Sequence[int], axis: int) -> Array:
        weight = RNG.integers(-127, 128, shape).astype(np.int8)
        np.moveaxis(weight, axis, 0)[list(self.pruned)] = 0
        return weight

    def file(self, depthwise: bool, fused: str) -> tuple[bytes, Array]:
        """The TFLite network, and its weight as (inputs, outputs)."""
        file, axis = File(), 3 if depthwise else 0
        weight = self.weight((1, 1, 1, 3) if depthwise else (3, 1, 1, 3), axis)
        data = file.input(IMAGE, "int8", scales=[STEP], zero_points=[ZERO])
        kernel = file.constant(weight, scales=self.scales, zero_points=[0] * 3, axis=axis)
        bias = file.constant(np.int32(self.bias), scales=np.float32(STEP) * self.scales, zero_points=[0] * 3, axis=0)
        result = file.tensor(IMAGE, "int8", scales=[self.out[0]], zero_points=[self.out[1]])
        kind, more = ("DEPTHWISE_CONV_2D", {"DepthMultiplier": 1}) if depthwise else ("CONV_2D", {})
        options = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
        told = {**CONV, **more, "FusedActivationFunction": FUSED[fused][0]}
        file.operator(kind, [data, kernel, bias], [result], options, **told)
        matrix = np.diag(weight.reshape(3)) if depthwise else weight.reshape(3, 3).T
        return file.write([result]), matrix

    def exact(self, x: Array, matrix: Array, fused: str) -> Array:
        """What the result's quantizer rounds, in float64."""
        _, low, high = FUSED[fused]
        scales, step = self.scales.astype(np.float64), np.float64(np.float32(STEP))
        sums = (x.astype(np.float64) - ZERO) * step @ (matrix * scales) + self.bias * (step * scales)
        return np.clip(sums, low, high)


def assert_rounded(found: Array, exact: Array, scale: float, zero: int) -> None:
    """Whether these are the steps of int8 nearest to real numbers; either one half-way between two."""
    step = np.float64(np.float32(scale))
    integers = np.rint(found / step)
    np.testing.assert_allclose(found, integers * step, rtol=1e-6)
    assert integers.min() >= -128 - zero and integers.max() <= 127 - zero
    places = np.clip(exact / step, -128 - zero, 127 - zero)
    assert np.abs(integers - places).max() <= 0.5 + 2.0**-18


LAYERS = {
    "pruned, with a bias": Layer(bias=(100, 50, 3)),
    "pruned, without": Layer(),
    "all pruned": Layer(pruned=(0, 1, 2), bias=(100, -50, 3)),
    "all zero": Layer(pruned=(0, 1, 2), bias=(0, 0, 0)),
    "tiny scale": Layer(1e-12),
    "tiny scale, live": Layer(1e-30, pruned=()),
    "denormal scale": Layer(1e-42),
    "tiny scale, largest bias": Layer(1.01e-9, bias=(100, MOST, 3)),
    "tiny scale, live, least bias": Layer(1.01e-9, pruned=(), bias=(100, LEAST, 3)),
    "biases at their ends": Layer(pruned=(), bias=(MOST, LEAST, MOST)),
    "large scale": Layer(1.3e6),
    "large scale, with a bias": Layer(1.3e6, bias=(100, -7, 3)),
    "all pruned, large scale": Layer(1e20, pruned=(0, 1, 2), bias=(0, 7, 0)),
    "zero points at the upper end": Layer(out=(0.0317, 127)),
    "fine result": Layer(out=(1.7e-9, -128)),
    "coarse result": Layer(out=(1e9, 5)),
    "steps beyond the limits": Layer(1.3e6, pruned=(), bias=(100, 7, -3)),
}


def quantized(graph: Graph, folder: Path) -> QuantizedModel:
    """The integers of the network, without data; their proof is checked from files."""
    model = mrt.quantize(graph)
    assert model.certificate.max_bits <= 32
    model.save(folder)
    verify(folder)
    return model


def given(model: QuantizedModel, feeds: Mapping[str, Array]) -> Array:
    """The real values of the only output."""
    return model.dequantize_outputs(model.graph.evaluate(feeds))[0]


def whole_image() -> Array:
    """An image of every integer of int8 in a channel, beside random ones."""
    values = RNG.integers(-128, 128, IMAGE).astype(np.int8)
    values.reshape(256, 3)[:, 1] = np.arange(-128, 128)
    return values


KINDS = ["convolution", "depthwise"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer(name: str, kind: str, tmp_path: Path) -> None:
    """Each has two of the functions that may be fused, in turn; the last one is limited by relu6."""
    layer, fused = LAYERS[name], [*FUSED][([*LAYERS].index(name) + KINDS.index(kind)) % len(FUSED)]
    content, matrix = layer.file(kind == "depthwise", fused)
    graph = from_tflite(content)
    model, (source,) = quantized(graph, tmp_path / "model"), graph.inputs
    image = whole_image()
    found = given(model, {source.name: image})
    assert_rounded(found, layer.exact(image, matrix, fused), *layer.out)


@pytest.mark.parametrize("fused", FUSED)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1.3e6, 1e25])
def test_a_scale_at_which_all_but_zero_saturates(scale: float, kind: str, fused: str, tmp_path: Path) -> None:
    layer = Layer(scale, pruned=())
    content, matrix = layer.file(kind == "depthwise", fused)
    graph = from_tflite(content)
    model = quantized(graph, tmp_path / "model")
    image = whole_image()
    found = given(model, {graph.inputs[0].name: image})
    assert_rounded(found, layer.exact(image, matrix, fused), *layer.out)


def zero_operand(file: File, data: int, scale: float, zero: int) -> int:
    """A tensor that is always 0: a convolution of zero weights and zero bias."""
    kernel = file.constant(np.zeros((3, 1, 1, 3), np.int8), scales=[0.01] * 3, zero_points=[0] * 3, axis=0)
    bias = file.constant(np.zeros(3, np.int32), scales=[0.01 * STEP] * 3, zero_points=[0] * 3, axis=0)
    result = file.tensor(IMAGE, "int8", scales=[scale], zero_points=[zero])
    file.operator("CONV_2D", [data, kernel, bias], [result], "Conv2DOptions", **CONV, FusedActivationFunction=0)
    return result


def zero_constant(file: File, data: int, scale: float, zero: int) -> int:
    return file.constant(np.full((1, 1, 1, 3), zero, np.int8), scales=[scale], zero_points=[zero])


BINARY = {
    "ADD": ("AddOptions", lambda x: x),
    "SUB": ("SubOptions", lambda x: x),
    "MUL": ("MulOptions", lambda x: 0 * x),
}


@pytest.mark.parametrize(("scale", "zero"), [(0.0299, -128), (0.0299, 127), (1e-12, 0), (1e12, -128)])
@pytest.mark.parametrize("operand", [zero_operand, zero_constant])
@pytest.mark.parametrize("kind", BINARY)
def test_an_operand_that_is_always_zero(kind: str, operand: object, scale: float, zero: int, tmp_path: Path) -> None:
    options, meaning = BINARY[kind]
    file = File()
    data = file.input(IMAGE, "int8", scales=[STEP], zero_points=[ZERO])
    result = file.tensor(IMAGE, "int8", scales=[0.0317], zero_points=[1])
    file.operator(kind, [data, operand(file, data, scale, zero)], [result], options)  # type: ignore[operator]
    graph = from_tflite(file.write([result]))
    model = quantized(graph, tmp_path / "model")
    image = whole_image()
    found = given(model, {graph.inputs[0].name: image})
    assert_rounded(found, meaning((image - float(ZERO)) * np.float32(STEP)), 0.0317, 1)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_of_onnx(name: str, tmp_path: Path) -> None:
    """QuantizeLinear and DequantizeLinear around a Conv of float32, its weight and bias integers."""
    layer = LAYERS[name]
    weight = layer.weight((3, 3, 1, 1), 0)
    constants = {
        **{"sx": np.float32(STEP), "zx": np.int8(ZERO), "w": weight, "sw": layer.scales, "zw": np.zeros(3, np.int8)},
        **{"b": np.int32(layer.bias), "sb": np.float32(STEP) * layer.scales, "zb": np.zeros(3, np.int32)},
        **{"sy": np.float32(layer.out[0]), "zy": np.int8(layer.out[1])},
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["qx"]),
        helper.make_node("DequantizeLinear", ["qx", "sx", "zx"], ["dx"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["dw"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "sb", "zb"], ["db"], axis=0),
        helper.make_node("Conv", ["dx", "dw", "db"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "sy", "zy"], ["qy"]),
        helper.make_node("DequantizeLinear", ["qy", "sy", "zy"], ["y"]),
    ]
    graph = from_onnx(make_model(nodes, {"x": (1, 3, 16, 16)}, constants=constants))
    model = quantized(graph, tmp_path / "model")
    image = whole_image()
    found = given(model, {"x": image.transpose(0, 3, 1, 2)}).transpose(0, 2, 3, 1)
    assert_rounded(found, layer.exact(image, weight.reshape(3, 3).T, "none"), *layer.out)


def test_compiled_alike() -> None:
    for name in ("all pruned", "large scale, with a bias", "tiny scale, live, least bias"):
        content, _ = LAYERS[name].file(True, "relu6")
        model = mrt.quantize(from_tflite(content))
        run = TvmRunner().prepare(model.graph)
        feeds = {model.graph.inputs[0].name: whole_image()}
        np.testing.assert_array_equal(run(feeds)[0], model.graph.evaluate(feeds)[0])


class Mobile:
    """A small network of depthwise and pointwise layers with relu6, many of whose channels are pruned."""

    def __init__(self, seed: int) -> None:
        self.random, self.file = np.random.default_rng(seed), File()

    def layer(self, data: int, scale: float, shape: Sequence[int], outputs: int) -> tuple[int, float, tuple[int, ...]]:
        """A pointwise layer of so many outputs, or a depthwise one of 3x3 where there are 0 of them."""
        random, channels = self.random, outputs or shape[-1]
        dead = random.random(channels) < random.choice([0.4, 1.0], p=[0.9, 0.1])
        weight = random.integers(-127, 128, (channels, 1, 1, shape[-1]) if outputs else (1, 3, 3, channels))
        np.moveaxis(weight, 0 if outputs else 3, 0)[dead] = 0
        odd_scales, odd_biases = [1.0, 1e-12, 1e-9, 0.01, 2.3e-38], [0, 5, 120000, LEAST, MOST]
        scales = np.where(dead, random.choice(odd_scales, channels), random.uniform(0.002, 0.02, channels))
        bias = np.where(dead, random.choice(odd_biases, channels), random.integers(-3000, 3000, channels))
        scales, zeros, step = scales.astype(np.float32), [0] * channels, float(random.choice([6 / 255, 0.01]))
        axis = 0 if outputs else 3
        kernel = self.file.constant(weight.astype(np.int8), scales=scales, zero_points=zeros, axis=axis)
        term = self.file.constant(bias.astype(np.int32), scales=np.float32(scale) * scales, zero_points=zeros, axis=0)
        shape = (*shape[:3], channels)
        result = self.file.tensor(shape, "int8", scales=[step], zero_points=[-128])
        told = {**CONV, "Padding": 0, "FusedActivationFunction": FUSED["relu6"][0]}
        if outputs:
            self.file.operator("CONV_2D", [data, kernel, term], [result], "Conv2DOptions", **told)
        else:
            told["DepthMultiplier"] = 1
            self.file.operator("DEPTHWISE_CONV_2D", [data, kernel, term], [result], "DepthwiseConv2DOptions", **told)
        return result, step, shape

    def content(self) -> bytes:
        data, scale, shape = (
            self.file.input((1, 4, 4, 3), "int8", scales=[0.0078], zero_points=[-1]),
            0.0078,
            (1, 4, 4, 3),
        )
        for outputs in (6, 0, 8, 0, 5):
            data, scale, shape = self.layer(data, scale, shape, outputs)
        result = self.file.tensor((1, 1, 1, 5), "int8", scales=[scale], zero_points=[-128])
        window = {"Padding": 1, "StrideH": 4, "StrideW": 4, "FilterHeight": 4, "FilterWidth": 4}
        self.file.operator("MAX_POOL_2D", [data], [result], "Pool2DOptions", **window)
        return self.file.write([result])


@pytest.mark.parametrize("seed", range(8))
def test_a_network_of_pruned_channels(seed: int) -> None:
    """Its integers stand for what the network means between its quantizers, computed in floats."""
    graph = from_tflite(Mobile(seed).content())
    model = mrt.quantize(graph)
    feeds = {graph.inputs[0].name: np.random.default_rng(seed).integers(-128, 128, (1, 4, 4, 3)).astype(np.int8)}
    np.testing.assert_allclose(given(model, feeds), graph.evaluate(feeds)[0], rtol=1e-6)
