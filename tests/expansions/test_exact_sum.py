"""Sums before quantizers of the network: the integers of exact rational arithmetic, halves to even."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import mrt
from mrt.backend import TvmRunner
from mrt.frontend.onnx import from_onnx
from mrt.model import QuantizedModel
from mrt.symbol import Array, Graph, GraphBuilder, Operator, Symbol, TensorType
from mrt.symbol.operators.activation import LeakyReLU, Relu
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastSub
from mrt.symbol.operators.elementwise import AddN, ElemwiseAdd, ElemwiseSub
from mrt.symbol.operators.integer import Dequantize, Quantize

NEAR = Fraction(1, 2**19)
"""What lies nearer to a half, in steps, may go either way."""
Real = list[Fraction]


def pair(builder: GraphBuilder, operator: Operator, data: Symbol, scale: object, zero: object, name: str) -> Symbol:
    parameters = [
        builder.parameter(f"{name}_scale", np.asarray(scale, np.float32)),
        builder.parameter(f"{name}_zero", np.asarray(zero, np.int32)),
    ]
    return builder.apply(operator, [data, *parameters], name)


def network(
    make: Callable[[GraphBuilder, list[Symbol]], Symbol],
    forms: Sequence[tuple[str, float, int]],
    out: tuple[object, int],
    shapes: Sequence[Sequence[int]],
) -> Graph:
    """Tensors of integers of these dtypes, scales and zero points, what `make` makes of them, a quantizer to uint8."""
    builder = GraphBuilder()
    sources = []
    for index, ((kind, scale, zero), shape) in enumerate(zip(forms, shapes, strict=True)):
        data = builder.input(f"x{index}", TensorType(tuple(shape), kind))
        sources.append(pair(builder, Dequantize(), data, scale, zero, f"real{index}"))
    quantizer = Quantize(a_min=0, a_max=255, dtype="uint8")
    return builder.graph([pair(builder, quantizer, make(builder, sources), *out, "y")])


def applied(*operators: Operator) -> Callable[[GraphBuilder, list[Symbol]], Symbol]:
    """The first operator on all tensors, the others behind it."""

    def make(builder: GraphBuilder, sources: list[Symbol]) -> Symbol:
        data = builder.apply(operators[0], sources, "step0")
        for index, operator in enumerate(operators[1:], start=1):
            data = builder.apply(operator, [data], f"step{index}")
        return data

    return make


def check(model: QuantizedModel, feeds: dict[str, Array], real: Real, scale: float, zero: int) -> None:
    """The output is `real` in steps, rounded half to even, and clipped."""
    (found,) = model.graph.evaluate(feeds)
    step = Fraction(float(np.float32(scale)))
    for value, integer in zip(real, found.reshape(-1).tolist(), strict=True):
        place = value / step
        wanted = {round(place)}
        distance = abs(place - Fraction(2 * (place.numerator // place.denominator) + 1, 2))
        if 0 < distance < NEAR:
            wanted |= {round(place) + 1, round(place) - 1}
        assert integer in {min(max(each + zero, 0), 255) for each in wanted}, (value, integer, wanted)


def reals(integers: Array, form: tuple[str, float, int]) -> Real:
    _, scale, zero = form
    step = Fraction(float(np.float32(scale)))
    return [(value - zero) * step for value in integers.reshape(-1).tolist()]


FORMS = {
    "different scales": (("uint8", 0.0383608, 162), ("uint8", 0.02878439, 0), (0.03580359, 0)),
    "zero points": (("uint8", 0.0113, 255), ("int8", 0.0709, -128), (0.0517, 77)),
    "one scale": (("uint8", 0.0219, 128), ("uint8", 0.0219, 128), (0.0219, 128)),
    "halves": (("uint8", 0.25, 3), ("uint8", 0.75, 100), (2.0, 11)),
    "far apart": (("uint8", 0.5077, 128), ("uint8", 0.00031, 7), (0.491, 128)),
    "a fine quantizer": (("uint8", 0.41, 128), ("uint8", 0.077, 7), (0.00037, 128)),
}
KINDS = {
    "sum": (applied(BroadcastAdd()), lambda a, b: a + b),
    "difference": (applied(ElemwiseSub()), lambda a, b: a - b),
    "sum behind relu": (applied(ElemwiseAdd(), Relu()), lambda a, b: max(a + b, Fraction(0))),
    "leaky": (
        applied(BroadcastSub(), LeakyReLU(slope=0.125)),
        lambda a, b: a - b if a > b else (a - b) * Fraction(1, 8),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_every_pair_of_integers(form: str, kind: str) -> None:
    """All zero points and steps in between of 8 bits beside every 51st integer, both ends among them."""
    first, second, out = FORMS[form]
    make, compute = KINDS[kind]
    columns = [np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, dtype=dtype) for dtype, _, _ in (first, second)]
    grid = [part.reshape(1, -1) for part in np.meshgrid(columns[0], columns[1][::51])]
    graph = network(make, (first, second), out, [part.shape for part in grid])
    model = mrt.quantize(graph)
    assert model.certificate.max_bits <= 32 and not model.ranges
    pairs = zip(reals(grid[0], first), reals(grid[1], second), strict=True)
    check(model, {"x0": grid[0], "x1": grid[1]}, [compute(a, b) for a, b in pairs], *out)


def test_sums_of_16_bits() -> None:
    """Where operands are wide the sum keeps the bits that are left."""
    forms, out = (("int16", 0.000371, 12), ("int16", 0.000137, -4000)), (0.0219, 128)
    rng = np.random.default_rng(0)
    data = [rng.integers(-(2**15), 2**15, (1, 20000)).astype(np.int16) for _ in forms]
    graph = network(applied(ElemwiseAdd()), forms, out, [part.shape for part in data])
    real = [a + b for a, b in zip(*(reals(x, form) for x, form in zip(data, forms, strict=True)), strict=True)]
    check(mrt.quantize(graph), {f"x{i}": x for i, x in enumerate(data)}, real, *out)


def test_a_sum_of_sums_is_rounded_once() -> None:
    """Of tensors, of sums of them that other sums read, and of channels that are broadcast."""
    forms = (("uint8", 0.0383, 162), ("int8", 0.0287, 3), ("uint8", 0.0219, 90))
    out, shapes = (0.0617, 100), [(1, 6, 31, 9), (1, 6, 1, 1), (1, 6, 31, 9)]

    def make(builder: GraphBuilder, sources: list[Symbol]) -> Symbol:
        inner = builder.apply(BroadcastAdd(), sources[:2], "inner")
        rest = builder.apply(Relu(), [builder.apply(BroadcastSub(), [sources[2], sources[1]], "rest")], "relu")
        return builder.apply(AddN(), [inner, rest, sources[0]], "outer")

    rng = np.random.default_rng(1)
    data = [
        rng.integers(np.iinfo(f[0]).min, np.iinfo(f[0]).max + 1, s).astype(f[0])
        for f, s in zip(forms, shapes, strict=True)
    ]
    model = mrt.quantize(network(make, forms, out, shapes))
    wide = [np.broadcast_to(part, shapes[0]) for part in data]
    columns = zip(*(reals(part, form) for part, form in zip(wide, forms, strict=True)), strict=True)
    real = [2 * a + b + max(c - b, Fraction(0)) for a, b, c in columns]
    check(model, {f"x{i}": part for i, part in enumerate(data)}, real, *out)


def residual_network(seed: int) -> onnx.ModelProto:
    """Convolutions and sums between quantizers of random scales and zero points, with and without relu, and a pool."""
    rng = np.random.default_rng(seed)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, Array] = {}
    scales: dict[str, float] = {}

    def quantized(data: str, name: str, scale: float, zero: int) -> str:
        constants.update({f"{name}_s": np.float32(scale), f"{name}_z": np.uint8(zero)})
        nodes.append(helper.make_node("QuantizeLinear", [data, f"{name}_s", f"{name}_z"], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [name]))
        scales[name] = float(np.float32(scale))
        return name

    def layer(data: str, name: str, relu: bool) -> str:
        steps = rng.uniform(0.002, 0.004, 8).astype(np.float32)
        constants.update(
            {
                f"{name}_w": rng.integers(-127, 128, (8, 8, 3, 3)).astype(np.int8),
                f"{name}_ws": steps,
                f"{name}_wz": np.zeros(8, np.int8),
                f"{name}_b": rng.integers(-3000, 3000, 8).astype(np.int32),
                f"{name}_bs": steps * np.float32(scales[data]),
                f"{name}_bz": np.zeros(8, np.int32),
            }
        )
        for part in ("w", "b"):
            names = [f"{name}_{part}", f"{name}_{part}s", f"{name}_{part}z"]
            nodes.append(helper.make_node("DequantizeLinear", names, [f"{name}_{part}d"], axis=0))
        inputs = [data, f"{name}_wd", f"{name}_bd"]
        nodes.append(helper.make_node("Conv", inputs, [f"{name}_c"], pads=[1, 1, 1, 1]))
        if relu:
            nodes.append(helper.make_node("Relu", [f"{name}_c"], [f"{name}_r"]))
        result = f"{name}_r" if relu else f"{name}_c"
        return quantized(result, name, rng.uniform(0.03, 0.05), 0 if relu else int(rng.integers(100, 156)))

    data = quantized("x", "given", 0.0213371, 119)
    for block in range(4):
        inner = layer(layer(data, f"a{block}", True), f"b{block}", False)
        nodes.append(helper.make_node("Add", [inner, data], [f"sum{block}"]))
        relu = block % 2 == 0
        if relu:
            nodes.append(helper.make_node("Relu", [f"sum{block}"], [f"relu{block}"]))
        zero = 0 if relu else int(rng.integers(100, 156))
        data = quantized(f"relu{block}" if relu else f"sum{block}", f"out{block}", rng.uniform(0.03, 0.05), zero)
    nodes.append(helper.make_node("GlobalAveragePool", [data], ["pooled"]))
    nodes[-1].output[0] = "pooled"
    quantized("pooled", "y", scales[data], int(constants[f"{data}_z"]))
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 8, 8, 7))],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("out3", "y")],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def in_float64(graph: Graph, feeds: dict[str, Array]) -> list[Array]:
    """The definition: float64 between the quantizers, which the records have in float32 but for the input's."""
    values: dict[Symbol, Array] = {}
    for symbol in graph.symbols:
        inputs = [values[source] for source in symbol.inputs]
        if symbol.is_variable:
            value = feeds.get(symbol.name, graph.parameters.get(symbol.name))
        elif isinstance(symbol.operator, Quantize) and symbol.inputs[0] not in graph.inputs:
            x, scale, zero = inputs
            value = np.clip(np.rint(x / scale.astype(np.float64)) + zero, symbol.operator.a_min, symbol.operator.a_max)
            value = value.astype(np.int64)
        else:
            value = np.asarray(symbol.operator.evaluate(*inputs))
        values[symbol] = value if value.dtype.kind in "iu" else value.astype(np.float64)
    return [values[symbol] for symbol in graph.outputs]


@pytest.mark.parametrize("seed", range(3))
def test_residual_networks_are_as_defined_and_as_onnx_runtime_has_them(seed: int) -> None:
    """Equal to the definition; ONNX Runtime's float32 may move what lies near a half."""
    proto = residual_network(seed)
    graph = from_onnx(proto)
    model = mrt.quantize(graph)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # Else pairs of products saturate at 16 bits on processors without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(seed + 10).uniform(-2.6, 2.9, (1, 8, 8, 7)).astype(np.float32)
    found = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    steps = [output.scale for output in model.outputs]
    for real, wanted, step in zip(found, in_float64(graph, {"x": x}), steps, strict=True):
        np.testing.assert_array_equal(np.rint(real / step), np.rint(wanted / step))
    for real, wanted, step in zip(found, session.run(None, {"x": x}), steps, strict=True):
        difference = np.abs(np.rint((real - wanted) / step))
        assert difference.max() <= 1 and np.mean(difference > 0) <= 0.02


def test_compiled_sums_are_the_same_integers() -> None:
    model = mrt.quantize(from_onnx(residual_network(0)))
    (given,) = model.inputs
    info = np.iinfo(given.dtype)
    feeds = {given.name: np.random.default_rng(2).integers(info.min, info.max + 1, given.shape).astype(given.dtype)}
    found = TvmRunner().prepare(model.graph)(feeds)
    for compiled, evaluated in zip(found, model.graph.evaluate(feeds), strict=True):
        np.testing.assert_array_equal(compiled, evaluated)
