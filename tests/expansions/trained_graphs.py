"""Small networks with trained quantizers, and how their integers are held against the definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import floor

import numpy as np

from mrt.model import QuantizedModel, assemble
from mrt.preparation import prepare
from mrt.quantization.expand import expand_graph
from mrt.quantization.options import InputConfig, QuantizationConfig
from mrt.symbol import Array, Graph, GraphBuilder, Operator, Symbol, TensorType
from mrt.symbol.operators.activation import Clip, LeakyReLU, Relu, Sigmoid
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.elementwise import ElemwiseAdd, ElemwiseMul
from mrt.symbol.operators.fake_quantize import FakeQuantize
from mrt.symbol.operators.integer import Dequantize, Quantize
from mrt.symbol.operators.linear import FullyConnected
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
