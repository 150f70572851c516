"""Trained quantization: the integers against the definitions, computed with fractions and in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import floor

import numpy as np
import pytest

import mrt
from mrt.errors import DataError, QuantizationError
from mrt.model import QuantizedModel, assemble
from mrt.preparation import prepare
from mrt.quantization.expand import expand_graph
from mrt.quantization.options import InputConfig, QuantizationConfig
from mrt.quantization.plan.constant_grids import fold_constants
from mrt.symbol import Array, Graph, GraphBuilder, NumpyRunner, Operator, Symbol, TensorType
from mrt.symbol.operators.activation import Clip, LeakyReLU, Relu, Sigmoid
from mrt.symbol.operators.broadcast import BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.elementwise import ElemwiseAdd, ElemwiseMul
from mrt.symbol.operators.fake_quantize import FakeQuantize
from mrt.symbol.operators.functions import HardSwish, Silu
from mrt.symbol.operators.integer import Dequantize, Quantize
from mrt.symbol.operators.linear import BatchDot, FullyConnected
from mrt.symbol.operators.normalization import LayerNorm
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.scalar import MulScalar
from mrt.symbol.operators.transform import Concat, Reshape, SliceAxis, Transpose

SPAN = 200
STEP = 1 / 32


def fake_quantize(builder: GraphBuilder, data: Symbol, limits: Sequence[object], levels: int, name: str) -> Symbol:
    """FakeQuantize between (input_low, input_high, output_low, output_high), or (low, high) of both."""
    limits = [*limits, *limits] if len(limits) == 2 else list(limits)
    names = FakeQuantize.input_names[1:]
    parameters = [
        builder.parameter(f"{name}_{n}", np.asarray(v, np.float32)) for n, v in zip(names, limits, strict=True)
    ]
    return builder.apply(FakeQuantize(levels=levels), [data, *parameters], name)


def integers_of(graph: Graph, **options: object) -> QuantizedModel:
    """The model without data, its inputs given as int16 in steps of STEP where a quantizer does not read them."""
    prepared = prepare(graph, tune_ranges=bool(options.get("tune_ranges", False)))
    model = assemble(expand_graph(prepared.graph, {}, QuantizationConfig(**options)), prepared.postprocess, {})
    assert model.certificate.max_bits <= 32
    return model


def all_steps(channels: int = 1) -> Array:
    steps = np.arange(-SPAN, SPAN + 1, dtype=np.int16)
    return np.broadcast_to(steps[:, None], (steps.size, channels))


GIVEN = {"x": InputConfig(scale=STEP, dtype="int16", range=(-SPAN, SPAN))}


def defined(x: Fraction, limits: Sequence[float], levels: int) -> set[Fraction]:
    """FakeQuantize with fractions; both neighbours where x lies half-way between two levels."""
    low, high, first, last = (Fraction(float(np.float32(limit))) for limit in limits)
    top = levels - 1

    def real(level: int) -> Fraction:
        return Fraction(level, top) * (last - first) + first

    if x <= min(low, high):
        return {first}
    if x > max(low, high):
        return {last}
    place = (x - low) / (high - low) * top
    below = floor(place)
    # float32 limits and the steps that follow from them tell places no better.
    slack = Fraction(1, 2**10) if levels <= 2**9 else Fraction(levels, 2**18)
    if abs(place - below - Fraction(1, 2)) <= slack:
        return {real(below), real(below + 1)}
    return {real(floor(place + Fraction(1, 2)))}


RANGES = {
    "unsigned": (0.0, 3.0),
    "signed": (-3.0 / (1 - 2 / 256), 3.0),
    "odd zero point": (-1.0, 1.55),
    "no integer zero point": (-1.0, 3.0 / 1.7),
    "without zero": (0.5, 2.75),
    "below zero": (-4.0, -1.0),
    "other output": (-2.0, 2.0, -1.0, 3.0),
    "quantize only": (0.0, 4.0, 0.0, 255.0),
    "falling output": (-1.0, 3.0, 3.0, -1.0),
    "inverted input": (2.0, -1.0, -1.0, 2.0),
    "inverted, other output": (2.0, -1.0, 0.0, 5.0),
    "binary": (0.25, 0.25, -1.0, 1.0),
    "binary between steps": (0.2531, 0.2531, 0.0, 1.5),
    "one output value": (-1.0, 1.0, 0.75, 0.75),
    "finer than the input": (-0.04, 0.05),
    "wider than the input": (-90.0, 165.0),
}


@pytest.mark.parametrize("levels", [2, 15, 256, 65536])
@pytest.mark.parametrize("kind", RANGES)
def test_integer_chain_is_the_definition_but_for_ties(kind: str, levels: int) -> None:
    limits = RANGES[kind] if len(RANGES[kind]) == 4 else (*RANGES[kind], *RANGES[kind])
    builder = GraphBuilder()
    data = builder.input("x", TensorType((1, 1)))
    graph = builder.graph([fake_quantize(builder, data, limits, levels, "y")])
    model = integers_of(graph, inputs=GIVEN)
    (found,) = model.dequantize_outputs(model.rebatched(2 * SPAN + 1).graph.evaluate({"x": all_steps()}))
    # The levels themselves, but where their zero is no integer: those leave in 2^15 steps.
    reach = max(abs(limits[2]), abs(limits[3]))
    is_whole = prepare(graph).graph.outputs[0].op == "FakeQuantize"
    off = reach * (1e-6 if is_whole else 1.25 * 2.0**-15)
    for step, value in zip(range(-SPAN, SPAN + 1), found[:, 0].tolist(), strict=True):
        wanted = defined(Fraction(step) * Fraction(STEP), limits, levels)
        nearest = min(abs(float(w) - value) for w in wanted)
        assert nearest <= off, (step, value, wanted)


FINE = 0.000371
"""Steps of the inputs of layers, none of which is half-way between two levels."""
SIGNED, UNSIGNED = (-2.0157480, 2.0), (0.0, 3.0)
ACTIVATIONS = {
    "signed": SIGNED,
    "unsigned": UNSIGNED,
    "zero point": (-1.0, 1.55),
    "no integer zero point": (-1.0, 1.63),
    "without zero": (0.5, 3.05),
    "dequantized otherwise": (-1.0, 1.55, -2.0, 3.1),
}
WEIGHTS = {
    "channels": lambda reach: ((-reach, reach), 255),
    "layer": lambda reach: ((-reach.max(), reach.max()), 255),
    "zero points of channels": lambda reach: (shifted_range(reach), 256),
    "half a zero point": lambda reach: ((-reach, reach), 256),
    "unsigned": lambda reach: ((np.zeros_like(reach), reach), 16),
}
LAYERS = {
    "convolution": (Convolution(kernel=(3, 3), num_filter=6, pad=(1, 1)), (6, 4, 3, 3), (2, 4, 6, 6)),
    "strided, asymmetric groups": (
        Convolution(kernel=(2, 3), num_filter=6, pad=(1, 0), stride=(2, 1), dilate=(2, 1), num_group=2),
        (6, 2, 2, 3),
        (2, 4, 7, 6),
    ),
    "depthwise": (Convolution(kernel=(3, 3), num_filter=4, pad=(1, 1), num_group=4), (4, 1, 3, 3), (2, 4, 6, 6)),
    "deconvolution": (
        Deconvolution(kernel=(3, 3), num_filter=5, stride=(2, 2), pad=(1, 1), no_bias=False),
        (4, 5, 3, 3),
        (2, 4, 4, 5),
    ),
    "dense": (FullyConnected(num_hidden=6), (6, 20), (3, 20)),
}


def shifted_range(reach: Array) -> tuple[Array, Array]:
    """256 levels with another integer zero point in each channel."""
    zero = np.arange(90, 90 + reach.size).reshape(reach.shape)
    step = reach / zero
    return -zero * step, (255 - zero) * step


def biases(activation: Sequence[float], limits: Sequence[Array], levels: int, integers: Array) -> Array:
    """Integers in steps of what the layer sums up, as quantizers write biases."""
    low, high = activation[-2:]
    steps = (limits[1] - limits[0]) / (levels - 1) * (high - low) / 255
    return (integers * np.broadcast_to(steps.reshape(-1), integers.shape)).astype(np.float32)


def layer_graph(layer: str, activation: Sequence[object], weight: str, out: Sequence[float], seed: int = 0) -> Graph:
    """A quantizer, a layer with a quantized weight and a bias, relu, a quantizer."""
    operator, shape, data = LAYERS[layer]
    rng, builder = np.random.default_rng(seed), GraphBuilder()
    source = fake_quantize(builder, builder.input("x", TensorType(data)), activation, 256, "a")
    values = rng.normal(0, 0.4, shape).astype(np.float32)
    axis = operator.weight_channel_axis
    axes = tuple(a for a in range(values.ndim) if a != axis)
    limits, levels = WEIGHTS[weight](np.abs(values).max(axis=axes, keepdims=True))
    quantized = fake_quantize(builder, builder.parameter("w", values), limits, levels, "w_quantized")
    bias = builder.parameter("b", biases(activation, limits, levels, rng.integers(-9999, 9999, shape[axis])))
    product = builder.apply(operator, [source, quantized, bias], "layer")
    return builder.graph([fake_quantize(builder, builder.apply(Relu(), [product], "r"), out, 256, "y")])


def assert_rounded_once(graph: Graph, off: float = 2e-5, seed: int = 1, **options: object) -> QuantizedModel:
    """Every output is the level of the real value before it, but where that lies within `off` levels of a tie."""
    fine = InputConfig(scale=FINE, dtype="int16")
    model = integers_of(graph, inputs={symbol.name: fine for symbol in graph.inputs}, **options)
    rng = np.random.default_rng(seed)
    steps = {s.name: np.rint(rng.normal(0, 1.2 / FINE, s.shape)).astype(np.int16) for s in graph.inputs}
    feeds = {name: (value * FINE).astype(np.float32) for name, value in steps.items()}
    found = model.dequantize_outputs(model.graph.evaluate(steps))
    for symbol, value in zip(graph.outputs, found, strict=True):
        (before,) = exactly(graph.with_outputs([symbol.inputs[0]]), feeds)
        limits = [graph.parameters[source.name].astype(np.float64) for source in symbol.inputs[1:]]
        low, high, first, last = limits
        top = symbol.operator.levels - 1
        place = np.clip((before - low) / (high - low) * top, 0, top)
        level = (value - first) / (last - first) * top
        assert np.abs(level - np.rint(level)).max() < 2e-3
        near_tie = np.abs(place - np.floor(place) - 0.5) < off
        assert np.abs(level - place).max() < 0.5 + off
        assert (near_tie | (np.rint(level) == np.rint(place))).all()
        assert np.mean((place > 0) & (place < top)) > 0.05, "the quantizer saturates everywhere"
    return model


def exactly(graph: Graph, feeds: dict[str, Array]) -> list[Array]:
    """The outputs in float64, but for quantizers, which are what they are defined to be."""
    values: dict[Symbol, Array] = {}
    for symbol in graph.symbols:
        if symbol.is_variable:
            value = feeds.get(symbol.name, graph.parameters.get(symbol.name))
        else:
            value = np.asarray(symbol.operator.evaluate(*(values[source] for source in symbol.inputs)))
        values[symbol] = value if value.dtype.kind in "iu" else value.astype(np.float64)
    return [values[symbol] for symbol in graph.outputs]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_layer_rounds_once(layer: str, activation: str) -> None:
    assert_rounded_once(layer_graph(layer, ACTIVATIONS[activation], "channels", (0.0, 2.5)))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("weight", WEIGHTS)
def test_a_layer_takes_the_integers_of_its_weight(layer: str, weight: str) -> None:
    assert_rounded_once(layer_graph(layer, ACTIVATIONS["zero point"], weight, (0.0, 3.5)))


def between(make: Callable[[GraphBuilder, list[Symbol]], Symbol], out: Sequence[object] = UNSIGNED) -> Graph:
    """Two quantized tensors (2, 4, 6, 6) of different scales, what `make` makes of them, a quantizer."""
    builder = GraphBuilder()
    inputs = [builder.input(name, TensorType((2, 4, 6, 6))) for name in ("x", "z")]
    limits = ((-1.0, 1.55), (0.0, 1.9))
    sources = [
        fake_quantize(builder, data, limit, 256, f"{data.name}_q") for data, limit in zip(inputs, limits, strict=True)
    ]
    return builder.graph([fake_quantize(builder, make(builder, sources), (*out, 0, 255), 256, "y")])


def residual(builder: GraphBuilder, sources: list[Symbol]) -> Symbol:
    return builder.apply(Relu(), [builder.apply(ElemwiseAdd(), sources, "sum")], "relu")


def layers_sum(builder: GraphBuilder, sources: list[Symbol]) -> Symbol:
    """Two accumulators with a scale for each channel, added: no quantizer stands between."""
    found = []
    for index, source in enumerate(sources):
        weight = np.random.default_rng(index).normal(0, 0.2 + 0.3 * index, (4, 4, 1, 1)).astype(np.float32)
        reach = np.abs(weight).max(axis=(1, 2, 3), keepdims=True)
        quantized = fake_quantize(builder, builder.parameter(f"w{index}", weight), (-reach, reach), 255, f"w{index}_q")
        layer = Convolution(kernel=(1, 1), num_filter=4, no_bias=True)
        found.append(builder.apply(layer, [source, quantized], f"layer{index}"))
    return builder.apply(ElemwiseAdd(), found, "sum")


def one(*operators: Operator) -> Callable[[GraphBuilder, list[Symbol]], Symbol]:
    """Operators of one input, one after the other."""

    def make(builder: GraphBuilder, sources: list[Symbol]) -> Symbol:
        data = sources[0]
        for index, operator in enumerate(operators):
            data = builder.apply(operator, [data], f"step{index}")
        return data

    return make


def all_of(operator: Operator) -> Callable[[GraphBuilder, list[Symbol]], Symbol]:
    return lambda builder, sources: builder.apply(operator, sources, "all")


SIGNED_OUT = (-1.00787402, 1.0)
BETWEEN = {
    "residual": (residual, UNSIGNED, 2e-5),
    "sum of accumulators": (layers_sum, SIGNED_OUT, 2e-5),
    "two quantizers": (
        lambda builder, sources: fake_quantize(builder, sources[0], (-0.7, 1.003), 16, "inner"),
        UNSIGNED,
        1e-3,
    ),
    "concat": (all_of(Concat(dim=1)), (-1.5, 2.0), 2e-5),
    "product": (all_of(ElemwiseMul()), (-1.4, 1.7), 2e-5),
    "relu": (one(Relu()), (0.0, 1.2), 2e-5),
    "limits": (one(Clip(a_min=-0.333, a_max=1.2347)), (-1.0, 1.4), 2e-5),
    "limits behind a product": (one(MulScalar(scalar=0.73), Clip(a_min=0.0, a_max=6.0)), (0.0, 1.0), 2e-5),
    "average pooling": (one(Pooling(kernel=(3, 3), pool_type="avg", pad=(1, 1), stride=(2, 2))), (-0.7, 0.9), 2e-5),
    "maximum pooling": (one(Pooling(kernel=(3, 3), pool_type="max", pad=(1, 1), stride=(2, 2))), (-0.3, 1.55), 2e-5),
    "global pooling": (one(Pooling(global_pool=True, pool_type="avg", kernel=(1, 1))), (-0.3, 0.5), 2e-5),
    "moves": (
        one(Transpose(axes=(0, 2, 3, 1)), Reshape(shape=(0, -1)), SliceAxis(axis=1, begin=3, end=90)),
        UNSIGNED,
        1e-3,
    ),
    "leaky": (one(LeakyReLU(slope=0.1)), (-0.1, 1.5), 2e-5),
    "function": (one(Sigmoid()), (0.0, 0.9), 2e-5),
    "function before no integer zero": (one(Sigmoid()), (0.2, 0.9), 0.04),
}


@pytest.mark.parametrize("case", BETWEEN)
def test_what_stands_between_two_quantizers_is_rounded_by_the_second(case: str) -> None:
    """Sums too: nothing is rounded to more than a part in 2^20 of its step first."""
    make, out, off = BETWEEN[case]
    model = assert_rounded_once(between(make, out), off)
    assert not any("anew" in note for note in model.notes)


def per_channel_depthwise(dense: bool = False) -> Graph:
    """A quantizer with a scale and a zero point for each channel before a padded depthwise convolution."""
    builder = GraphBuilder()
    zero, step = np.array([0, 100, 128, 255]), np.array([0.01, 0.0013, 0.1, 0.02])
    limits = [(end * step).reshape(1, 4, 1, 1) for end in (-zero, 255 - zero)]
    data = fake_quantize(builder, builder.input("x", TensorType((2, 4, 6, 6))), limits, 256, "a")
    weight = np.random.default_rng(5).normal(0, 0.5, (4, 4 if dense else 1, 3, 3)).astype(np.float32)
    reach = np.abs(weight).max(axis=(1, 2, 3), keepdims=True)
    quantized = fake_quantize(builder, builder.parameter("w", weight), (-reach, reach), 255, "w_q")
    layer = Convolution(kernel=(3, 3), num_filter=4, pad=(1, 1), num_group=1 if dense else 4, no_bias=True)
    outputs = [*((end * step * 2).reshape(1, 4, 1, 1) for end in (-zero, 255 - zero)), 0, 255]
    product = builder.apply(layer, [data, quantized], "layer")
    pooled = builder.apply(Pooling(kernel=(2, 2), pool_type="max"), [product], "pooled")
    return builder.graph([fake_quantize(builder, pooled, outputs, 256, "y")])


def test_scales_and_zero_points_of_channels_of_the_source() -> None:
    """Channel by channel, so that `assert_rounded_once`, whose quantizers have one, sees each of them."""
    assert_rounded_once(per_channel_depthwise(), 2e-5)


def test_a_sum_over_channels_of_several_scales_is_noted() -> None:
    integer = mrt.quantize(per_channel_depthwise(dense=True))
    (note,) = (note for note in integer.notes if "one scale" in note)
    assert note == "rounded anew to one scale for Convolution, which adds up channels of several: layer_pad"


def quantizer(
    builder: GraphBuilder,
    data: Symbol,
    scale: object,
    zero_point: object,
    name: str,
    dtype: str = "uint8",
    bits: int = 0,
) -> Symbol:
    info = np.iinfo(dtype)
    lo, hi = (0, 2**bits - 1) if bits else (int(info.min), int(info.max))
    parameters = _pair(builder, scale, zero_point, name)
    return builder.apply(Quantize(a_min=lo, a_max=hi, dtype=dtype), [data, *parameters], name)


def dequantizer(builder: GraphBuilder, data: Symbol, scale: object, zero_point: object, name: str) -> Symbol:
    return builder.apply(Dequantize(), [data, *_pair(builder, scale, zero_point, name)], name)


def _pair(builder: GraphBuilder, scale: object, zero_point: object, name: str) -> list[Symbol]:
    values = (np.asarray(scale, np.float32), np.asarray(zero_point, np.int32))
    return [builder.parameter(f"{name}_{n}", v) for n, v in zip(("scale", "zero_point"), values, strict=True)]


def qdq_graph(dtype: str = "uint8", bits: int = 0) -> Graph:
    """ONNX's form: a convolution between quantizers, its weight and bias dequantized, a maximum of integers behind."""
    rng, builder = np.random.default_rng(7), GraphBuilder()
    step = 1.7 / (2**bits - 1 if bits else np.iinfo(dtype).max)
    data = quantizer(builder, builder.input("x", TensorType((2, 4, 6, 6))), step, 19, "xq", dtype, bits)
    data = dequantizer(builder, data, step, 19, "x_dq")
    scales = rng.uniform(0.004, 0.006, (6, 1, 1, 1)).astype(np.float32)
    weight = builder.parameter("w", rng.integers(-127, 128, (6, 4, 3, 3)).astype(np.int8))
    weight = dequantizer(builder, weight, scales, rng.integers(-3, 4, (6, 1, 1, 1)), "w_dq")
    bias = builder.parameter("b", rng.integers(-40000, 40000, 6).astype(np.int32))
    bias = dequantizer(builder, bias, (scales.reshape(-1) * np.float32(step)), 0, "b_dq")
    layer = builder.apply(Convolution(kernel=(3, 3), num_filter=6, pad=(1, 1)), [data, weight, bias], "layer")
    found = quantizer(builder, builder.apply(Relu(), [layer], "relu"), 0.031, 3, "y")
    pooled = builder.apply(Pooling(kernel=(2, 2), stride=(2, 2), pool_type="max"), [found], "pooled")
    return builder.graph([dequantizer(builder, pooled, 0.031, 3, "out")])


@pytest.mark.parametrize(("dtype", "bits"), [("uint8", 0), ("int8", 0), ("int16", 0), ("int32", 16), ("uint8", 4)])
def test_quantize_and_dequantize_of_onnx(dtype: str, bits: int) -> None:
    """The integers are those of the definition, in float64, on the same inputs; halves may go either way."""
    graph = qdq_graph(dtype, bits)
    model = mrt.quantize(graph)
    x = np.random.default_rng(8).normal(0.3, 0.5, (2, 4, 6, 6)).astype(np.float32)
    (found,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    (wanted,) = exactly(graph, {"x": x})
    steps = np.abs(found - wanted) / 0.031
    assert steps.max() < 1.001 and np.mean(steps > 0.5) < 2e-3
    assert model.inputs[0].zero_point == 19 and model.outputs[0].zero_point == 3
    assert model.outputs[0].scale == np.float32(0.031)
    assert not model.ranges and not any("anew" in note for note in model.notes)


def test_a_function_between_quantizers_of_16_bits_has_entries_of_16_bits() -> None:
    builder = GraphBuilder()
    data = quantizer(builder, builder.input("x", TensorType((2, 500))), 0.0002, 32768, "q", "int32", 16)
    found = builder.apply(Sigmoid(), [dequantizer(builder, data, 0.0002, 32768, "real")], "function")
    graph = builder.graph([quantizer(builder, found, 2.0**-16, 0, "y", "int32", 16)])
    x = np.random.default_rng(8).normal(0, 3, (2, 500)).astype(np.float32)
    model = mrt.quantize(graph)
    (found,) = model.graph.evaluate(model.quantize_inputs(x))
    (wanted,) = exactly(graph, {"x": x})
    assert np.abs(found - wanted).max() <= 1 and np.mean(found != wanted) < 0.01


def test_integers_that_come_in_are_dequantized_by_the_network() -> None:
    builder = GraphBuilder()
    data = builder.input("x", TensorType((2, 3), "uint8"))
    real = dequantizer(builder, data, 0.5, 128, "real")
    graph = builder.graph([fake_quantize(builder, builder.apply(Relu(), [real], "r"), (0.0, 31.875), 256, "y")])
    model = mrt.quantize(graph)
    x = np.array([[0, 127, 128], [129, 200, 255]], np.uint8)
    assert model.inputs[0].is_given and model.inputs[0].dtype == "uint8"
    (found,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    np.testing.assert_allclose(found, np.clip((x.astype(float) - 128) * 0.5, 0, 31.875), atol=0.0626)


def mixed_graph(middle: Callable[[GraphBuilder, Symbol], Symbol]) -> Graph:
    """A quantized layer, what `middle` makes of it, a layer that brings nothing."""
    builder, rng = GraphBuilder(), np.random.default_rng(3)
    data = fake_quantize(builder, builder.input("x", TensorType((2, 4, 6, 6))), (-1.0, 1.55), 256, "a")
    weight = rng.normal(0, 0.3, (4, 4, 3, 3)).astype(np.float32)
    quantized = fake_quantize(builder, builder.parameter("w", weight), (-1.0, 1.0), 255, "w_q")
    product = builder.apply(Convolution(kernel=(3, 3), num_filter=4, no_bias=True), [data, quantized], "first")
    second = builder.parameter("v", rng.normal(0, 0.3, (2, 4, 1, 1)).astype(np.float32))
    made = middle(builder, product)
    return builder.graph(
        [builder.apply(Convolution(kernel=(1, 1), num_filter=2, no_bias=True), [made, second], "last")]
    )


def test_the_rest_of_a_network_is_calibrated() -> None:
    graph = mixed_graph(lambda builder, data: builder.apply(Silu(), [data], "function"))
    with pytest.raises(QuantizationError, match="not known without data: first, function; no"):
        mrt.quantize(graph)
    x = np.random.default_rng(4).normal(0, 0.8, (2, 4, 6, 6)).astype(np.float32)
    model = mrt.quantize(graph, x, runner=NumpyRunner())
    assert set(model.ranges) == {"first", "function", "last"}
    (found,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    (wanted,) = graph.evaluate({"x": x})
    assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()
    notes = "\n".join(model.notes)
    assert "rounded anew for silu, since no quantizer of the network stands before it: first" in notes


FLAT = {
    "of its own range": (one(Sigmoid()), (0.0, 1.0)),
    "behind a quantizer": (one(Silu()), (-1.0, 1.55)),
    "behind a quantizer that is moved": (one(HardSwish(), Transpose(axes=(0, 2, 3, 1))), (-0.5, 0.775)),
}


@pytest.mark.parametrize("case", FLAT)
def test_a_function_of_an_accumulator_needs_no_data_where_what_it_tells_apart_is_known(case: str) -> None:
    """The accumulator is rounded to 16 bits over that, however far its proven range goes."""
    make, out = FLAT[case]
    graph = between(lambda builder, sources: make(builder, [layers_sum(builder, sources)]), out)
    assert_rounded_once(graph, 0.02)


def test_what_a_network_does_not_round_is_rounded_to_16_bits() -> None:
    """A global average before a function: 8 bits would bring the result off by steps of the quantizer."""
    pooling = Pooling(global_pool=True, pool_type="avg", kernel=(1, 1))
    graph = between(one(LeakyReLU(slope=0.1), pooling, Sigmoid()), (0.4, 0.6))
    assert_rounded_once(graph, 0.05)


def test_what_a_quantizer_bounds_needs_no_data() -> None:
    """The second layer reads the first one's output through a quantizer; its own output leaves at its proven range."""
    graph = mixed_graph(lambda builder, data: fake_quantize(builder, data, (0.0, 2.0), 256, "between"))
    model = mrt.quantize(graph)
    x = np.random.default_rng(4).normal(0, 0.8, (2, 4, 6, 6)).astype(np.float32)
    (found,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    (wanted,) = graph.evaluate({"x": x})
    assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()


def test_a_float_network_needs_data() -> None:
    builder = GraphBuilder()
    graph = builder.graph([builder.apply(Relu(), [builder.input("x", TensorType((1, 3)))], "y")])
    with pytest.raises(QuantizationError, match="x .* has no range; calibrate it first"):
        mrt.quantize(graph)
    with pytest.raises(DataError, match="fast bias correction needs calibration data"):
        mrt.quantize(graph, quantization=QuantizationConfig(bias_correction="fast"))


@pytest.mark.parametrize("same", [True, False])
def test_ranges_are_tuned_where_that_is_asked_and_noted(same: bool) -> None:
    limits = (-1.0, 1.63) if same else (-1.0, 1.63, -2.0, 2.9)
    builder = GraphBuilder()
    graph = builder.graph([fake_quantize(builder, builder.input("x", TensorType((1, 64))), limits, 256, "y")])
    prepared = prepare(graph, tune_ranges=True)
    (note,) = prepared.notes
    assert note.startswith("y (FakeQuantize): tuned to an integer zero point: input [-1, 1.63] became [")
    tuned = [prepared.graph.parameters[source.name] for source in prepared.graph.outputs[0].inputs[1:]]
    for (low, high), (old_low, old_high) in zip((tuned[:2], tuned[2:]), (limits[:2], limits[-2:]), strict=True):
        zero = -low / (high - low) * 255
        assert abs(zero - np.rint(zero)) < 1e-9
        step = (old_high - old_low) / 255
        assert abs(low - old_low) < step and abs(high - old_high) < step
        assert np.isclose(low, old_low, rtol=1e-6) or np.isclose(high, old_high, rtol=1e-6)
    model = mrt.quantize(graph, quantization=QuantizationConfig(tune_ranges=True))
    assert model.notes[0] == note and model.outputs[0].zero_point in range(256)
    assert not any("tuned" in note for note in mrt.quantize(graph).notes)


def test_weights_without_an_integer_zero_keep_a_finer_one() -> None:
    """They are as near as integers of 16 bits, a part in 2^7 of their step."""
    weight = np.random.default_rng(9).uniform(-0.7, 1.1, (6, 20)).astype(np.float32)
    builder = GraphBuilder()
    data = fake_quantize(builder, builder.input("x", TensorType((3, 20))), SIGNED, 256, "a")
    quantized = fake_quantize(builder, builder.parameter("w", weight), (-0.7001, 1.1), 256, "w_q")
    graph = builder.graph([builder.apply(FullyConnected(num_hidden=6, no_bias=True), [data, quantized], "layer")])
    prepared, constants = fold_constants(prepare(graph).graph)
    (defined_weight,) = Graph((), (quantized,), graph.parameters).evaluate({})
    assert list(constants) == ["w_q"] and np.abs(constants["w_q"].integers).max() < 2**15
    assert np.abs(prepared.parameters["w_q"] - defined_weight).max() <= (1.8 / 255) / 2**7


@pytest.mark.parametrize("block", [1, 5])
def test_a_weight_with_a_scale_for_each_input_channel_is_quantized_anew_and_noted(block: int) -> None:
    builder = GraphBuilder()
    data = fake_quantize(builder, builder.input("x", TensorType((3, 20))), SIGNED, 256, "a")
    integers = builder.parameter("w", np.random.default_rng(1).integers(-127, 128, (6, 20)).astype(np.int8))
    weight = dequantizer(builder, integers, np.linspace(0.01, 0.02, 20 // block).repeat(block), 0, "w_q")
    graph = builder.graph([builder.apply(FullyConnected(num_hidden=6, no_bias=True), [data, weight], "layer")])
    notes = expand_graph(prepare(graph).graph, {}, QuantizationConfig()).notes
    assert any(
        note.startswith("layer (FullyConnected): w_q came quantized with a scale for each input") for note in notes
    )


@pytest.mark.parametrize("zero_point", [0, 3])
def test_a_weight_with_negative_scales_is_turned_round(zero_point: int) -> None:
    """As NNCF compresses weights: that of largest magnitude is -128. The integers stay those of int8."""
    integers = np.random.default_rng(1).integers(-128, 128, (4, 4, 3, 3)).astype(np.int8)
    integers[:, 0, 0, 0] = -128
    scales = np.reshape([0.011, -0.0093, -0.0121, 0.0087], (4, 1, 1, 1))

    def layer(builder: GraphBuilder, sources: list[Symbol]) -> Symbol:
        weight = dequantizer(builder, builder.parameter("w", integers), scales, zero_point, "w_q")
        operator = Convolution(kernel=(3, 3), num_filter=4, pad=(1, 1), no_bias=True)
        return builder.apply(operator, [sources[0], weight], "layer")

    model = assert_rounded_once(between(layer, (-6.4, 6.35)))
    weights = [s.inputs[1] for s in model.graph.operators if s.op == "Convolution"]
    assert all(weight.dtype == "int8" for weight in weights)


def test_constants_are_followed_through_what_moves_and_scales_them() -> None:
    """A transposed, negatively scaled weight: the integers of the oracle, not ones that were rounded anew."""
    rng, builder = np.random.default_rng(2), GraphBuilder()
    values = rng.integers(-127, 128, (20, 6)).astype(np.int8)
    weight = dequantizer(builder, builder.parameter("w", values), np.linspace(0.01, 0.02, 6), 3, "w_q")
    factor = builder.parameter("f", np.float32([-2.0]))
    scaled = builder.apply(BroadcastMul(), [builder.apply(Transpose(), [weight], "turned"), factor], "scaled")
    data = fake_quantize(builder, builder.input("x", TensorType((3, 20))), SIGNED, 256, "a")
    graph = builder.graph([builder.apply(FullyConnected(num_hidden=6, no_bias=True), [data, scaled], "layer")])
    _, constants = fold_constants(prepare(graph).graph)
    grid = constants["scaled"]
    assert (grid.integers == -values.T).all() and (grid.zero_point == -3).all()
    np.testing.assert_allclose(grid.scale.reshape(-1), np.float32(np.linspace(0.01, 0.02, 6)) * 2.0, rtol=1e-12)


def test_limits_of_channels_are_one_clip() -> None:
    """Every clip behind the rounding has the same two ends for all channels: those of the levels."""
    model = integers_of(per_channel_depthwise())
    ends = [(s.operator.a_min, s.operator.a_max) for s in model.graph.operators if isinstance(s.operator, Clip)]
    assert (0.0, 255.0) in ends
    assert not any(symbol.op in ("broadcast_maximum", "broadcast_minimum") for symbol in model.graph.operators)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ((-1.0, 1.63), "since their zero point is no integer"),
        ((0.3, 0.3, -1.0, 1.0), "since their limits are equal"),
        ((1.0, -1.0, -1.0, 1.0), "since their limits are in the wrong order"),
    ],
)
def test_a_chain_that_stays_is_noted(limits: Sequence[float], reason: str) -> None:
    graph = between(lambda builder, sources: fake_quantize(builder, sources[0], limits, 256, "stays"))
    (note,) = (note for note in mrt.quantize(graph).notes if "element by element" in note)
    assert note.startswith(f"computed element by element, {reason}: stays")


def test_a_matrix_product_takes_the_integers_of_its_constant() -> None:
    def product(builder: GraphBuilder, sources: list[Symbol]) -> Symbol:
        integers = np.random.default_rng(4).integers(-99, 100, (2, 6, 5)).astype(np.int8)
        constant = dequantizer(builder, builder.parameter("w", integers), 0.0113, 2, "w_q")
        rows = builder.apply(Reshape(shape=(2, 24, 6)), [sources[0]], "rows")
        return builder.apply(BatchDot(), [rows, constant], "product")

    assert_rounded_once(between(product, (-2.0, 3.1)))


def test_an_input_that_is_moved_first_comes_in_at_the_grid_of_its_quantizer() -> None:
    builder = GraphBuilder()
    moved = builder.apply(Transpose(axes=(0, 2, 1)), [builder.input("x", TensorType((2, 3, 4)))], "moved")
    padded = builder.apply(Pad(pad_width=(0, 0, 1, 1, 0, 2)), [moved], "padded")
    graph = builder.graph([fake_quantize(builder, padded, (-1.0, 1.55), 256, "y")])
    model = mrt.quantize(graph)
    assert (model.inputs[0].scale, model.inputs[0].zero_point) == (np.float32(0.01), 100)
    x = np.random.default_rng(0).normal(0, 1, (2, 3, 4)).astype(np.float32)
    (found,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    np.testing.assert_allclose(found, graph.evaluate({"x": x})[0], atol=1e-6)


@pytest.mark.parametrize("limits", [(100.0, 103.0), (-31.7, -30.01)])
def test_an_input_far_from_zero_comes_in_over_its_range(limits: Sequence[float]) -> None:
    """With no integer zero point, in 16 bits of that range and not of all from zero on."""
    builder = GraphBuilder()
    graph = builder.graph([fake_quantize(builder, builder.input("x", TensorType((1, 999))), limits, 255, "y")])
    model = mrt.quantize(graph)
    x = np.random.default_rng(0).uniform(limits[0] - 0.3, limits[1] + 0.3, (1, 999)).astype(np.float32)
    (found,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    steps = np.abs(found - graph.evaluate({"x": x})[0]) / ((limits[1] - limits[0]) / 254)
    assert steps.max() < 1.6 and np.mean(steps > 0.7) < 0.02


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ((-1e-30, 1e-30), "its output has steps of 7.8"),
        ((np.full((2, 1, 1), -1), np.array([1, 2]).reshape(2, 1, 1)), "its output has a scale along the batch"),
    ],
)
def test_quantizers_without_a_form_are_refused_with_the_reason(limits: Sequence[object], words: str) -> None:
    builder = GraphBuilder()
    data = builder.input("x", TensorType((2, 3, 4)))
    graph = builder.graph([fake_quantize(builder, data, limits, 256, "y")])
    with pytest.raises(QuantizationError, match=f"FakeQuantize.: {words}"):
        mrt.quantize(graph, np.ones((2, 3, 4), np.float32), runner=NumpyRunner())


def test_what_the_records_do_not_bound_is_bounded_by_its_quantizer() -> None:
    builder = GraphBuilder()
    data = fake_quantize(builder, builder.input("x", TensorType((2, 64))), SIGNED, 256, "a")
    gamma, beta = (builder.parameter(n, np.full(64, v, np.float32)) for n, v in (("gamma", 1.0), ("beta", 0.1)))
    normal = builder.apply(LayerNorm(), [data, gamma, beta], "normal")
    graph = builder.graph([fake_quantize(builder, normal, (-4.0, 4.0 * 127 / 128), 256, "y")])
    model = mrt.quantize(graph)
    x = np.random.default_rng(0).normal(0, 1, (2, 64)).astype(np.float32)
    (found,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    assert np.abs(found - graph.evaluate({"x": x})[0]).max() < 1.5 * 4 / 128


def test_limits_beyond_those_of_the_quantizer_are_not_computed() -> None:
    """There are as many as without them."""
    product, limits = MulScalar(scalar=0.73), Clip(a_min=0.0, a_max=6.0)
    with_limits, without = (
        assert_rounded_once(between(one(*ops), (0.0, 5.99))) for ops in ((product, limits), (product,))
    )
    assert [s.op for s in with_limits.graph.operators] == [s.op for s in without.graph.operators]
