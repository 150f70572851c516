"""QONNX models: every quantizer is what its published definition says, and its integers are kept."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import mrt
from mrt.errors import UnsupportedOperatorError
from mrt.frontend.onnx import from_onnx
from mrt.symbol import Graph
from mrt.symbol.operators.integer import Dequantize
from tests.frontend.qonnx_reference import (
    ROUNDINGS,
    int_quant,
    model_of,
    node,
    quant_constants,
    quant_node,
)

EVERY_INTEGER = np.arange(-128, 128)[None]


def integers_of(graph: Graph, x: np.ndarray) -> list[np.ndarray]:
    """The real outputs of the integer network, which needs no data."""
    model = mrt.quantize(graph)
    assert model.certificate.max_bits <= 32
    return model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))


def weight_of(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """The integers of the weight of the last layer, a row for each output, and their scale."""
    symbol = graph.outputs[0].inputs[1]
    assert isinstance(symbol.operator, Dequantize)
    integers, scale = (graph.value(source) for source in symbol.inputs[:2])
    assert integers is not None
    assert scale is not None
    return integers, scale


@pytest.mark.parametrize("domain", ["onnx.brevitas", "finn.custom_op.general", "qonnx.custom_op.general"])
@pytest.mark.parametrize("operator", ["Quant", "IntQuant"])
def test_every_domain(domain: str, operator: str) -> None:
    nodes = [quant_node("x", "y", "q", domain, operator=operator, signed=1, narrow=1, rounding_mode="ROUND")]
    x = np.linspace(-3, 3, 97, dtype=np.float32)[None]
    graph = from_onnx(model_of(nodes, x.shape, quant_constants("q", 0.125, 0, 4)))
    np.testing.assert_array_equal(graph.evaluate({"x": x})[0], int_quant(x, 0.125, 0, 4, narrow=True))


@pytest.mark.parametrize("zero", [0.0, 2.0, 3.0])
@pytest.mark.parametrize(("signed", "narrow"), [(True, False), (True, True), (False, False), (False, True)])
def test_every_rounding_of_every_integer(zero: float, signed: bool, narrow: bool) -> None:
    """Ties and whole numbers among them: a quarter step of 256 integers, in the float graph and in integers."""
    x = (EVERY_INTEGER * 0.125).astype(np.float32)
    nodes = [quant_node("x", "a", "a", signed=1, narrow=0)]
    nodes += [quant_node("a", m, "b", signed=signed, narrow=narrow, rounding_mode=m.lower()) for m in ROUNDINGS]
    constants = quant_constants("a", 0.125) | quant_constants("b", 0.5, zero, 5)
    graph = from_onnx(model_of(nodes, x.shape, constants, list(ROUNDINGS)))
    wanted = [int_quant(x, 0.5, zero, 5, signed, narrow, mode) for mode in ROUNDINGS]
    for found in (graph.evaluate({"x": x}), integers_of(graph, x)):
        for mode, ours, theirs in zip(ROUNDINGS, found, wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs, mode)


@pytest.mark.parametrize("mode", ["ROUND", "FLOOR", "CEIL", "UP", "DOWN", "HALF_UP", "HALF_DOWN"])
@pytest.mark.parametrize("zero", [0, 3])
def test_an_input_is_rounded_as_its_quantizer_says(zero: int, mode: str, tmp_path: Path) -> None:
    """Of a saved model too, and in the compiled module, which rounds its inputs itself."""
    x = np.arange(-40, 41, dtype=np.float32)[None] / 8
    nodes = [quant_node("x", "y", "q", rounding_mode=mode, signed=0)]
    mrt.quantize(from_onnx(model_of(nodes, x.shape, quant_constants("q", 0.5, zero, 4)))).save(tmp_path)
    module = mrt.load(tmp_path).compile()
    np.testing.assert_array_equal(np.asarray(module(x)), int_quant(x, 0.5, zero, 4, False, mode=mode))


def test_whole_numbers_of_steps_that_float32_has_not() -> None:
    """0.3 is no multiple of 0.1 in float32; a rounding to one side takes what is nearly whole as whole."""
    nodes = [quant_node("x", "a", "a")]
    nodes += [quant_node("a", mode, "b", rounding_mode=mode) for mode in ("FLOOR", "CEIL", "UP", "DOWN")]
    constants = quant_constants("a", 0.1) | quant_constants("b", 0.3)
    graph = from_onnx(model_of(nodes, (1, 256), constants, ["FLOOR", "CEIL", "UP", "DOWN"]))
    found = integers_of(graph, (EVERY_INTEGER * np.float32(0.1)).astype(np.float32))
    for mode, ours in zip(("FLOOR", "CEIL", "UP", "DOWN"), found, strict=True):
        wanted = [{"FLOOR": n // 3, "CEIL": -(-n // 3)}.get(mode, int(n / 3)) for n in EVERY_INTEGER[0].tolist()]
        if mode == "UP":
            wanted = [-(-n // 3) if n > 0 else n // 3 for n in EVERY_INTEGER[0].tolist()]
        np.testing.assert_array_equal(np.rint(ours[0] / 0.3), wanted, mode)


@pytest.mark.parametrize("operator", ["BipolarQuant", "Quant"])
def test_bipolar_levels(operator: str) -> None:
    """1 at and above 0, -1 below: of data, behind a sum of products and a normalisation, and of weights."""
    rng = np.random.default_rng(3)
    weight, factor = rng.normal(0, 1, (6, 5)).astype(np.float32), rng.normal(0, 1, 5).astype(np.float32)
    x = rng.integers(-2, 2, (40, 6)).astype(np.float32)
    sign = ["one"] if operator == "BipolarQuant" else ["one", "zero", "one"]
    nodes = [
        quant_node("x", "a", "a"),
        node(operator, ["w", *(["half", "zero", "one"][: len(sign)])], "weight", "onnx.brevitas", signed=1),
        node("MatMul", ["a", "weight"], "m"),
        node("Mul", ["m", "factor"], "f"),
        node(operator, ["f", *sign], "y", "onnx.brevitas", signed=1),
        node(operator, ["a", *sign], "z", "onnx.brevitas", signed=1),
    ]
    scalars = {"one": np.float32(1), "half": np.float32(0.5), "zero": np.float32(0)}
    constants = quant_constants("a", 1.0) | scalars | {"w": weight, "factor": factor}
    if operator == "BipolarQuant":
        for item in nodes:
            if item.op_type == operator:
                del item.attribute[:]
    graph = from_onnx(model_of(nodes, x.shape, constants, ["y", "z"]))
    products = x @ np.where(weight >= 0, 1, -1) * factor
    assert (products == 0).any()
    wanted = [np.where(products >= 0, 1, -1), np.where(x >= 0, 1, -1)]
    for found in (graph.evaluate({"x": x}), integers_of(graph, x)):
        for ours, theirs in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("bits", [1, 2, 3, 7, 8, 11, 16])
def test_bits_of_weights_and_data(bits: int) -> None:
    """Integers of the weights are the definition's, one scale a channel, behind a Transpose too; so are the sums."""
    rng = np.random.default_rng(bits)
    weight = rng.normal(0, 1, (5, 4)).astype(np.float32)
    scale = np.ldexp(np.ones((5, 1), np.float32), rng.integers(-bits, -bits + 4, (5, 1)))
    x = np.ldexp(rng.integers(-(2**9), 2**9, (20, 4)).astype(np.float32), -6)
    nodes = [
        quant_node("x", "a", "a", signed=0, narrow=0),
        quant_node("w", "q", "q", signed=0, narrow=0),
        node("Transpose", ["q"], "t", perm=[1, 0]),
        node("MatMul", ["a", "t"], "y"),
    ]
    constants = quant_constants("a", 0.25, 1, min(bits, 11)) | quant_constants("q", scale, 0, bits) | {"w": weight}
    graph = from_onnx(model_of(nodes, x.shape, constants))
    rounded = int_quant(weight, scale, 0, bits, False)
    stored, scales = weight_of(graph)
    np.testing.assert_array_equal(stored, np.rint(rounded / scale))
    np.testing.assert_array_equal(scales.reshape(-1), scale.reshape(-1))
    wanted = int_quant(x, 0.25, 1, min(bits, 11), False).astype(np.float64) @ rounded.T
    (found,) = integers_of(graph, x)
    # The outputs are brought to one scale, of 16 bits for all that they could be.
    largest = 0.25 * 2 ** min(bits, 11) * np.abs(rounded).sum(1).max()
    np.testing.assert_allclose(found, wanted, atol=largest * 2.0**-15)


def residual_network() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """As Brevitas writes a block: scales by channel, a bias of 16 bits, sums, a truncating average."""
    rng = np.random.default_rng(8)
    constants = {
        "w1": rng.normal(0, 1, (4, 3, 3, 3)).astype(np.float32),
        "w2": rng.normal(0, 1, (4, 1, 3, 3)).astype(np.float32),
        "b": rng.normal(0, 1, 4).astype(np.float32),
        "w3": rng.normal(0, 1, (5, 4)).astype(np.float32),
        "four": np.float32(4),
        "flat": np.array([2, -1]),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "bits_in": np.float32(7),
        "bits_out": np.float32(5),
    }
    constants |= quant_constants("x8", 0.0625) | quant_constants("u5", 0.25, 0, 5) | quant_constants("s5", 0.25, 0, 5)
    constants |= quant_constants("w4", np.array([0.5, 0.25, 0.25, 1], np.float32).reshape(4, 1, 1, 1), 0, 4)
    constants |= quant_constants("b16", 2.0**-9, 0, 16) | quant_constants("w2b", 0.5, 0, 2)
    nodes = [
        quant_node("x", "a", "x8"),
        quant_node("w1", "k1", "w4", narrow=1),
        quant_node("b", "kb", "b16"),
        node("Pad", ["a", "pads"], "padded"),
        node("Conv", ["padded", "k1", "kb"], "c1"),
        node("Relu", ["c1"], "r1"),
        quant_node("r1", "q1", "u5", signed=0),
        quant_node("w2", "k2", "w4"),
        node("Conv", ["q1", "k2"], "c2", pads=[1, 1, 1, 1], group=4),
        quant_node("c2", "q2", "s5"),
        quant_node("q1", "q1again", "s5"),
        node("Add", ["q2", "q1again"], "sum"),
        node("Relu", ["sum"], "r2"),
        quant_node("r2", "q3", "u5", signed=0),
        node("AveragePool", ["q3"], "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("Mul", ["p", "four"], "p4"),
        node(
            "Trunc",
            ["p4", "u5_s", "u5_z", "bits_in", "bits_out"],
            "tr",
            "qonnx.custom_op.general",
            rounding_mode="FLOOR",
        ),
        node("ReduceMax", ["tr"], "best", axes=[2, 3], keepdims=0),
        quant_node("w3", "k3", "w2b", narrow=1),
        node("Transpose", ["k3"], "k3t", perm=[1, 0]),
        node("MatMul", ["best", "k3t"], "y"),
    ]
    return model_of(nodes, (2, 3, 8, 8), constants, ["tr", "y"]), constants


def test_a_residual_network() -> None:
    """All scales are powers of two, so that the reference's float32 is exact: every tie goes where it does there."""
    model, c = residual_network()
    x = np.random.default_rng(4).normal(0, 2, (2, 3, 8, 8)).astype(np.float32)
    a = np.pad(int_quant(x, 0.0625, 0, 8), ((0, 0), (0, 0), (1, 1), (1, 1)))
    k1, k2 = int_quant(c["w1"], c["w4_s"], 0, 4, narrow=True), int_quant(c["w2"], c["w4_s"], 0, 4)

    def windows(data: np.ndarray) -> np.ndarray:
        return np.lib.stride_tricks.sliding_window_view(data, (3, 3), (2, 3)).astype(np.float64)

    c1 = np.einsum("nchwij,ocij->nohw", windows(a), k1) + int_quant(c["b"], 2.0**-9, 0, 16)[:, None, None]
    q1 = int_quant(np.maximum(c1, 0).astype(np.float32), 0.25, 0, 5, False)
    c2 = np.einsum("nchwij,cij->nchw", windows(np.pad(q1, ((0, 0), (0, 0), (1, 1), (1, 1)))), k2[:, 0])
    total = int_quant(c2.astype(np.float32), 0.25, 0, 5) + int_quant(q1, 0.25, 0, 5)
    q3 = int_quant(np.maximum(total, 0), 0.25, 0, 5, False)
    pooled = q3.reshape(2, 4, 4, 2, 4, 2).sum((3, 5))
    truncated = np.floor(np.rint(pooled / 0.25) / 4) * 0.25
    y = truncated.max((2, 3)) @ int_quant(c["w3"], 0.5, 0, 2, narrow=True).T
    graph = from_onnx(model)
    for found in (graph.evaluate({"x": x}), integers_of(graph, x)):
        np.testing.assert_array_equal(found[0], truncated)
        np.testing.assert_array_equal(found[1], y)


def test_an_input_that_nothing_rounds_has_as_many_bits_as_its_layer_has_room_for() -> None:
    """As QKeras writes networks, whose input is a float: 16 bits beside weights of 6, fewer beside wider ones."""
    rng = np.random.default_rng(2)
    x = rng.normal(0, 1, (50, 8)).astype(np.float32)
    for bits, wanted in ((6, 16), (16, 12)):
        nodes = [
            quant_node("w", "q", "q"),
            node("MatMul", ["x", "q"], "m"),
            node("Relu", ["m"], "r"),
            quant_node("r", "y", "u", signed=0),
        ]
        constants = {"w": rng.uniform(-1, 1, (8, 3)).astype(np.float32)} | quant_constants("u", 2.0**-5, 0, 6)
        constants["w"][:] = np.where(constants["w"] > 0, 0.9, -0.9)
        graph = from_onnx(model_of(nodes, x.shape, constants | quant_constants("q", 2.0 ** (1 - bits), 0, bits)))
        model = mrt.quantize(graph, x)
        assert model.inputs[0].hi == 2 ** (wanted - 1) - 1
        (found,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
        assert np.abs(found - graph.evaluate({"x": x})[0]).max() <= 2.0**-5


@pytest.mark.parametrize("signed", [0, 1])
def test_truncation_of_version_2(signed: int) -> None:
    """Two bits go: clip(floor(q / 4)), at a scale four times as large."""
    nodes = [
        quant_node("x", "a", "a"),
        node("Trunc", ["a", "a_s", "a_z", "a_b", "s", "b"], "y", "qonnx.custom_op.general", signed=signed, narrow=0),
    ]
    constants = quant_constants("a", 0.5) | {"s": np.float32(2), "b": np.float32(5)}
    x = (EVERY_INTEGER * 0.5).astype(np.float32)
    graph = from_onnx(model_of(nodes, x.shape, constants))
    low, high = (-16, 15) if signed else (0, 31)
    wanted = np.clip(EVERY_INTEGER // 4, low, high) * 2.0
    for (found,) in (graph.evaluate({"x": x}), integers_of(graph, x)):
        np.testing.assert_array_equal(found, wanted)


def test_a_scaled_weight_stays_integers() -> None:
    """As Brevitas writes a scale that is learned beside the quantizer."""
    rng = np.random.default_rng(1)
    nodes = [
        quant_node("x", "a", "a"),
        quant_node("w", "q", "q"),
        node("Mul", ["q", "factor"], "m"),
        node("Div", ["m", "three"], "d"),
        node("MatMul", ["a", "d"], "y"),
    ]
    factor = rng.uniform(0.5, 2, 5).astype(np.float32)
    constants = {"w": rng.normal(0, 1, (4, 5)).astype(np.float32), "factor": factor, "three": np.float32(3)}
    constants |= quant_constants("a", 0.25) | quant_constants("q", 0.125, 0, 4)
    graph = from_onnx(model_of(nodes, (3, 4), constants))
    stored, scale = weight_of(graph)
    np.testing.assert_array_equal(stored, np.rint(int_quant(constants["w"], 0.125, 0, 4) / 0.125).T)
    np.testing.assert_allclose(scale.reshape(-1), 0.125 * factor / 3, rtol=1e-6)


@pytest.mark.parametrize(
    ("operator", "change", "message"),
    [
        ("FloatQuant", {}, "rounded to floats of few bits; rounding to integers, as by IntQuant, is needed"),
        ("MultiThreshold", {}, "a list of thresholds"),
        ("Quant", {"q_b": np.float32(2.5)}, "input bitwidth is 2.5; one whole number from 1 to 24 is needed"),
        ("Quant", {"q_b": np.array([2, 3], np.float32)}, "input bitwidth is several numbers"),
        ("Quant", {"q_z": np.float32(0.5)}, "the zero point is 0.5; an integer"),
        ("Quant", {"q_s": np.float32(-1)}, "the scale is"),
        ("Quant", {"mode": "STOCHASTIC"}, "rounding_mode is STOCHASTIC"),
        ("Quant", {"q_s": None}, "input scale is computed from the data"),
    ],
)
def test_what_is_refused(operator: str, change: dict[str, Any], message: str) -> None:
    attributes = {"rounding_mode": change.pop("mode")} if "mode" in change else {}
    constants = quant_constants("q", 0.5) | change
    nodes = [quant_node("x", "y", "q", operator=operator, **attributes)]
    if constants["q_s"] is None:
        del constants["q_s"]
        nodes.insert(0, node("Abs", ["x"], "q_s"))
    with pytest.raises(UnsupportedOperatorError, match=message):
        from_onnx(model_of(nodes, (2, 2), constants))


# Published networks


@pytest.fixture
def folder(data_folder: Path) -> Path:
    if not (data_folder / "qonnx").is_dir():
        pytest.skip("QONNX networks are absent: MRT_DATA has no folder qonnx")
    return data_folder / "qonnx"


def reference(folder: Path, name: str) -> tuple[Graph, np.ndarray, np.ndarray]:
    data = np.load(folder / f"{name}.npz")
    x = data["x"]
    return mrt.load_model(folder / f"{name}.onnx"), x / np.float32(255) if x.dtype == np.uint8 else x, data["y"]


@pytest.mark.parametrize("name", ["TFC_1W2A", "TFC_2W2A", "kwsmlp_w3a3", "qkeras_jettagging"])
def test_a_published_network_is_the_reference(folder: Path, name: str) -> None:
    """The float graph: bit for bit but for the order of sums."""
    graph, x, y = reference(folder, name)
    for sample in range(0, 60, 3):
        (found,) = graph.evaluate({graph.inputs[0].name: x[sample : sample + 1]})
        np.testing.assert_allclose(found[0], y[sample], atol=1e-5)


def pixels(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """All 10,000 test images of MNIST in [0, 1], and their labels."""
    if not (folder.parent / "mnist").is_dir():
        pytest.skip("MNIST is absent: MRT_DATA has no folder mnist")
    images = gzip.decompress((folder.parent / "mnist/t10k-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder.parent / "mnist/t10k-labels-idx1-ubyte.gz").read_bytes())
    data = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 1, 28, 28)
    return data / np.float32(255), np.frombuffer(labels, np.uint8, offset=8)


@pytest.mark.parametrize(("name", "top1"), [("TFC_1W2A", 94.79), ("TFC_2W2A", 96.60)])
def test_published_accuracy_and_integers(folder: Path, name: str, top1: float) -> None:
    """As published on all images by the compiled module; all integers are those that the reference's outputs tell.

    Classes tie in some images, which what is published decides in a way that it does not say.
    """
    graph, x, y = reference(folder, name)
    images, labels = pixels(folder)
    module = mrt.quantize(graph, images[:200]).rebatched(100).compile()
    found = np.asarray(module(images))
    right = np.take_along_axis(found, labels[:, None].astype(int), 1)[:, 0]
    rivals = np.where(np.arange(10) == labels[:, None], -np.inf, found).max(1)
    sure, at_most = (round(float(mask.mean() * 100), 2) for mask in (right > rivals, right >= rivals))
    assert sure <= top1 <= at_most
    assert at_most - sure < 0.4
    np.testing.assert_allclose(np.asarray(module(x)), y, atol=1e-4)


def test_a_network_of_qkeras_has_the_classes_of_the_reference(folder: Path) -> None:
    graph, x, y = reference(folder, "qkeras_jettagging")
    model = mrt.quantize(graph, x).rebatched(len(x))
    (scores,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    exponentials = np.exp(scores)
    found = exponentials / exponentials.sum(1, keepdims=True)
    np.testing.assert_array_equal(found.argmax(1), y.argmax(1))
    np.testing.assert_allclose(found, y, atol=0.01)


def test_a_network_of_three_bits_needs_no_data(folder: Path) -> None:
    graph, x, y = reference(folder, "kwsmlp_w3a3")
    np.testing.assert_allclose(np.asarray(mrt.quantize(graph).compile()(x)), y, atol=1e-4)
