"""Quantized ONNX models: the float graph evaluates as ONNX Runtime has it, and what is stored quantized stays so."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.onnx import from_onnx
from mrt.frontend.onnx.node import covered_operators
from mrt.symbol import Graph
from mrt.symbol.operators.fake_quantize import FakeQuantize
from mrt.symbol.operators.integer import Dequantize

RNG = np.random.default_rng(7)
DRAWN_FIRST = RNG.bit_generator.state
MICROSOFT = "com.microsoft"
QONNX = {"Quant", "IntQuant", "BipolarQuant", "Trunc", "FloatQuant", "MultiThreshold"}
"""Those of `test_qonnx.py`."""
U8, I8 = TensorProto.UINT8, TensorProto.INT8


@pytest.fixture(autouse=True)
def _drawn_anew() -> None:
    """What a test draws depends on no test before it."""
    RNG.bit_generator.state = DRAWN_FIRST


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[int]]],
    constants: Mapping[str, np.ndarray],
    outputs: Mapping[str, int],
    opset: int = 17,
) -> onnx.ModelProto:
    """A model of typed inputs and outputs, with the domains that its nodes have."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    domains = {node.domain for node in nodes} - {""}
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def run_plainly(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime gives without making other operators of those that stand there."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, dict(feeds))]


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape).astype(np.float32)


def integers(dtype: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def weights(dtype: str, *shape: int) -> np.ndarray:
    """Integers as `integers` gives them, of int8 those of 7 bits: ONNX Runtime adds up two products of uint8 and int8
    in 16 bits where a processor has no instruction that adds up four in 32."""
    return integers(dtype, *shape) >> (dtype == "int8")


def check_within_a_step(graph: Graph, model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> None:
    """Integers differ by one at most, and that seldom: ONNX Runtime requantizes in float32."""
    for found, wanted in zip(graph.evaluate(dict(feeds)), run_plainly(model, feeds), strict=True):
        difference = np.abs(found.astype(np.int64) - wanted.astype(np.int64))
        assert difference.max() <= 1
        assert (difference > 0).sum() <= max(0.02 * difference.size, 1)


@pytest.mark.parametrize("opset", [10, 12, 13, 19, 21])
@pytest.mark.parametrize(
    ("dtype", "has_zero_point"),
    [("int8", True), ("uint8", True), ("int16", True), ("uint16", True), ("uint8", False)],
)
def test_quantize_then_dequantize(opset: int, dtype: str, has_zero_point: bool) -> None:
    """Equal to ONNX Runtime at every step and half step, and outside of the range."""
    domain = MICROSOFT if dtype.endswith("16") and opset < 21 else ""
    scale = np.array(0.25, np.float32)
    zero = np.array(np.iinfo(dtype).max // 3, dtype)
    ends = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], np.int64) - int(zero if has_zero_point else 0)
    near = np.concatenate([np.arange(end - 3, end + 3.25, 0.25) for end in (*ends, 0)]) * 0.25
    x = near.astype(np.float32).reshape(1, 3, -1)
    constants = {"s": scale} | ({"z": zero} if has_zero_point else {})
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *constants], ["q"], domain=domain),
        helper.make_node("DequantizeLinear", ["q", *constants], ["y"], domain=domain),
    ]
    model = model_of(nodes, {"x": (TensorProto.FLOAT, x.shape)}, constants, {"y": TensorProto.FLOAT}, opset)
    np.testing.assert_array_equal(from_onnx(model).evaluate({"x": x})[0], run_plainly(model, {"x": x})[0])


@pytest.mark.parametrize(("axis", "shape"), [(1, (2, 3, 4)), (0, (3, 2)), (-1, (2, 5, 3)), (None, (2, 3, 4))])
def test_scales_along_an_axis(axis: int | None, shape: tuple[int, ...]) -> None:
    constants = {"s": np.array([0.1, 0.25, 3], np.float32), "z": np.array([0, -7, 100], np.int8)}
    attributes = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attributes),
    ]
    model = model_of(nodes, {"x": (TensorProto.FLOAT, shape)}, constants, {"y": TensorProto.FLOAT})
    x = 10 * normal(*shape)
    np.testing.assert_array_equal(from_onnx(model).evaluate({"x": x})[0], run_plainly(model, {"x": x})[0])


@pytest.mark.parametrize(("x_type", "w_type"), [(U8, "int8"), (U8, "uint8"), (I8, "int8")])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_convolution_of_integers(x_type: int, w_type: str, per_channel: bool, has_bias: bool) -> None:
    """Zero points of data and weights, in borders that differ between the sides."""
    dtype = "uint8" if x_type == U8 else "int8"
    channels = 6
    scale = RNG.uniform(0.01, 0.02, channels if per_channel else ()).astype(np.float32)
    zero = np.zeros(scale.shape, w_type) if per_channel or w_type == "int8" else np.array(131, w_type)
    constants = {
        **{"xs": np.float32(0.02), "xz": np.array(37, dtype)},
        **{"w": weights(w_type, channels, 2, 3, 2), "ws": scale, "wz": zero},
        **{"ys": np.float32(0.08), "yz": np.array(100, dtype)},
        **({"b": RNG.integers(-5000, 5000, channels).astype(np.int32)} if has_bias else {}),
    }
    node = helper.make_node("QLinearConv", ["x", *constants], ["y"], group=2, pads=[1, 0, 2, 1], strides=[2, 1])
    model = model_of([node], {"x": (x_type, (2, 4, 7, 6))}, constants, {"y": x_type})
    check_within_a_step(from_onnx(model), model, {"x": integers(dtype, 2, 4, 7, 6)})


@pytest.mark.parametrize("per_column", [False, True])
def test_matrix_product_of_integers(per_column: bool) -> None:
    scale = RNG.uniform(0.01, 0.02, 5 if per_column else ()).astype(np.float32)
    constants = {
        **{"as": np.float32(0.02), "az": np.uint8(37)},
        **{"b": weights("int8", 8, 5), "bs": scale, "bz": np.zeros(scale.shape, np.int8)},
        **{"ys": np.float32(0.03), "yz": np.uint8(100)},
    }
    node = helper.make_node("QLinearMatMul", ["x", *constants], ["y"])
    model = model_of([node], {"x": (U8, (2, 3, 8))}, constants, {"y": U8})
    check_within_a_step(from_onnx(model), model, {"x": integers("uint8", 2, 3, 8)})


@pytest.mark.parametrize("operator", ["ConvInteger", "MatMulInteger"])
@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_sums_of_products_of_integers(operator: str, zeros: int) -> None:
    """The float that is read is the integer that ONNX Runtime gives, and what follows a cast of it is as there."""
    shape, weight = ((1, 2, 5, 5), (3, 2, 3, 3)) if operator == "ConvInteger" else ((4, 6), (6, 3))
    constants = {"w": integers("uint8", *weight), "xz": np.uint8(9), "wz": np.uint8(200), "s": np.float32(0.5)}
    names = ["x", "w", "xz", "wz"][: 2 + zeros]
    nodes = [
        helper.make_node(operator, names, ["sum"]),
        helper.make_node("Cast", ["sum"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["real", "s"], ["y"]),
    ]
    model = model_of(nodes, {"x": (U8, shape)}, constants, {"sum": TensorProto.INT32, "y": TensorProto.FLOAT})
    feeds = {"x": integers("uint8", *shape)}
    for found, wanted in zip(from_onnx(model).evaluate(feeds), run_plainly(model, feeds), strict=True):
        np.testing.assert_array_equal(found, wanted)


PAIR = {"s": np.float32(0.05), "z": np.uint8(120)}
RESULT = {"ys": np.float32(0.03), "yz": np.uint8(90)}
IMAGE = (1, 3, 6, 5)
OF_ONE: Mapping[str, dict[str, Any]] = {
    "QLinearSigmoid": {},
    "QLinearLeakyRelu": {"alpha": 0.1},
    "QLinearSoftmax": {"axis": 1, "opset": 13},
    "QLinearGlobalAveragePool": {"channels_last": 0},
    "QLinearAveragePool": {"kernel_shape": [2, 3], "pads": [1, 0, 0, 1], "strides": [2, 1]},
}
"""ONNX Runtime's operators on one tensor, with attributes."""


@pytest.mark.parametrize("operator", sorted(OF_ONE))
def test_operators_of_onnx_runtime_on_one_tensor(operator: str) -> None:
    constants = PAIR | RESULT
    if operator in ("QLinearSoftmax", "QLinearSigmoid"):
        constants |= {"ys": np.float32(1 / 256), "yz": np.uint8(0)}
    node = helper.make_node(operator, ["x", *constants], ["y"], domain=MICROSOFT, **OF_ONE[operator])
    model = model_of([node], {"x": (U8, IMAGE)}, constants, {"y": U8})
    check_within_a_step(from_onnx(model), model, {"x": integers("uint8", *IMAGE)})


@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("is_constant", [False, True])
def test_operators_of_onnx_runtime_on_two_tensors(operator: str, is_constant: bool) -> None:
    other = {"bs": np.float32(0.0213), "bz": np.uint8(100)}  # 0.05 times 0.02 is a thirtieth of 0.03: halves
    b = integers("uint8", 3, 1, 1)
    constants = PAIR | other | RESULT | ({"b": b} if is_constant else {})
    node = helper.make_node(operator, ["x", *PAIR, "b", *other, *RESULT], ["y"], domain=MICROSOFT)
    inputs = {"x": (U8, IMAGE)} | ({} if is_constant else {"b": (U8, b.shape)})
    model = model_of([node], inputs, constants, {"y": U8})
    feeds = {"x": integers("uint8", *IMAGE)} | ({} if is_constant else {"b": b})
    check_within_a_step(from_onnx(model), model, feeds)


def test_concatenation_of_onnx_runtime() -> None:
    other = {"bs": np.float32(0.02), "bz": np.uint8(100)}
    node = helper.make_node(
        "QLinearConcat", [*RESULT, "x", *PAIR, "b", *other, "x", *other], ["y"], domain=MICROSOFT, axis=1
    )
    model = model_of([node], {"x": (U8, IMAGE), "b": (U8, IMAGE)}, PAIR | other | RESULT, {"y": U8})
    check_within_a_step(from_onnx(model), model, {name: integers("uint8", *IMAGE) for name in "xb"})


@pytest.mark.parametrize("trans", [0, 1])
@pytest.mark.parametrize("gives_integers", [False, True])
@pytest.mark.parametrize("alpha", [1.0, 0.7])
def test_gemm_of_onnx_runtime(trans: int, gives_integers: bool, alpha: float) -> None:
    """Scales of the weight's columns, in both orders of its axes; without a scale of its result it is a float.

    The factor is one of the bias too, whose integers are at the scale of the product.
    """
    weight = {
        "b": weights("int8", *((5, 8) if trans else (8, 5))),
        "bs": RNG.uniform(0.01, 0.02, 5).astype(np.float32),
        "bz": np.zeros(5, np.int8),
        "c": RNG.integers(-500, 500, 5).astype(np.int32),
    }
    constants = PAIR | weight | (RESULT if gives_integers else {})
    node = helper.make_node("QGemm", ["x", *constants], ["y"], domain=MICROSOFT, transB=trans, alpha=alpha)
    kind = U8 if gives_integers else TensorProto.FLOAT
    model = model_of([node], {"x": (U8, (3, 8))}, constants, {"y": kind})
    feeds = {"x": integers("uint8", 3, 8)}
    if gives_integers:
        check_within_a_step(from_onnx(model), model, feeds)
    else:
        np.testing.assert_allclose(from_onnx(model).evaluate(feeds)[0], run_plainly(model, feeds)[0], rtol=1e-5)


def test_every_operator_of_other_domains_is_tested() -> None:
    two = {"QLinearAdd", "QLinearMul", "QLinearConcat", "QGemm"}
    known = {f"{MICROSOFT}.{name}" for name in two | set(OF_ONE)}
    covered = {name for name in covered_operators(others=True) if name.split(".")[-1] not in QONNX}
    refused = {f"{MICROSOFT}.DynamicQuantizeLSTM"}  # with what to do: see test_onnx_recurrent.py
    dynamic = {f"{MICROSOFT}.{name}" for name in ("DynamicQuantizeMatMul", "MatMulIntegerToFloat")}
    # Those are in test_onnx_dynamic_quantization.py.
    assert covered == known | refused | dynamic | {"org.openvinotoolkit.FakeQuantize"}


# Constants


def fully_connected(nodes: Sequence[onnx.NodeProto], constants: Mapping[str, np.ndarray]) -> Graph:
    """A matrix product with a weight `w` that the nodes make."""
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = model_of([*nodes, product], {"x": (TensorProto.FLOAT, (2, 4))}, constants, {"y": TensorProto.FLOAT})
    x = normal(2, 4)
    graph = from_onnx(model)
    np.testing.assert_allclose(graph.evaluate({"x": x})[0], run_plainly(model, {"x": x})[0], rtol=1e-5, atol=1e-5)
    return graph


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_a_weight_stays_quantized_where_it_is_moved(moves: int) -> None:
    """Its integers, scales and zero points are transposed while reading, those of nodes included."""
    q = RNG.integers(-128, 128, (4, 3) if moves != 1 else (3, 4)).astype(np.int8)
    columns = 1 if moves != 1 else 0
    scale, zero = np.array([0.5, 0.25, 2], np.float32), np.array([0, 3, -9], np.int8)
    nodes = [helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w0"], axis=columns)]
    nodes += [helper.make_node("Transpose", [f"w{i}"], [f"w{i + 1}"], perm=[1, 0]) for i in range(moves)]
    nodes.append(helper.make_node("Identity", [f"w{moves}"], ["w"]))
    graph = fully_connected(nodes, {"q": q, "s": scale, "z": zero})
    weight = graph.by_name["y"].inputs[1]
    assert isinstance(weight.operator, Dequantize)
    stored, scales, zeros = (graph.parameters[symbol.name] for symbol in weight.inputs)
    np.testing.assert_array_equal(stored, q.T if columns else q)
    assert stored.dtype == np.int8
    assert scales.shape == zeros.shape == (3, 1)
    np.testing.assert_array_equal(scales.ravel(), scale)
    np.testing.assert_array_equal(zeros.ravel(), zero)


def test_a_weight_that_is_quantized_in_the_graph() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["f", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"]),
    ]
    graph = fully_connected(nodes, {"f": normal(4, 3), "s": np.float32(0.05), "z": np.int8(5)})
    assert isinstance(graph.by_name["y"].inputs[1].operator, Dequantize)


def test_a_weight_with_a_scale_for_each_block_has_one_for_each_element() -> None:
    """What sums over blocks is quantized anew and noted: `test_trained_quantization.py`."""
    node = helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=2)
    q, scale = integers("int8", 4, 3), RNG.uniform(0.1, 1, (2, 3)).astype(np.float32)
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = model_of(
        [node, product], {"x": (TensorProto.FLOAT, (2, 4))}, {"q": q, "s": scale}, {"y": TensorProto.FLOAT}, 21
    )
    graph = from_onnx(model)
    weight = graph.by_name["y"].inputs[1]
    assert isinstance(weight.operator, Dequantize)
    stored, scales = (graph.parameters[symbol.name] for symbol in weight.inputs[:2])
    np.testing.assert_array_equal(stored, q.T)
    np.testing.assert_array_equal(scales, np.repeat(scale, 2, axis=0).T)


def test_fake_quantize_of_openvino() -> None:
    """Of data, and of a weight, which stays a FakeQuantize of its own parameter; values as defined, in float64."""
    weight = normal(4, 3)
    limits = {"il": np.full((1, 1), -1.0), "ih": np.full((1, 3), 1.5), "ol": np.full((1, 1), -1.0), "oh": np.ones(1)}
    limits = {name: value.astype(np.float32) for name, value in limits.items()}
    attributes = {"domain": "org.openvinotoolkit", "levels": 15}
    nodes = [
        helper.make_node("FakeQuantize", ["x", "l", "h", "l", "h"], ["xq"], **attributes),
        helper.make_node("FakeQuantize", ["f", *limits], ["w"], **attributes),
        helper.make_node("MatMul", ["xq", "w"], ["y"]),
    ]
    constants = {"l": np.float32(-2), "h": np.float32(2), "f": weight, **limits}
    model = model_of(nodes, {"x": (TensorProto.FLOAT, (2, 4))}, constants, {"y": TensorProto.FLOAT})
    graph = from_onnx(model)
    x = normal(2, 4)

    def defined(x: np.ndarray, il: float, ih: float, ol: float, oh: float) -> np.ndarray:
        q = np.clip(np.rint((x.astype(np.float64) - il) / (ih - il) * 14), 0, 14)
        return q / 14 * (oh - ol) + ol

    expected = defined(x, -2, 2, -2, 2) @ defined(weight, -1, 1.5, -1, 1)
    np.testing.assert_allclose(graph.evaluate({"x": x})[0], expected, rtol=1e-5, atol=1e-5)
    data, kernel = graph.by_name["y"].inputs
    assert isinstance(data.operator, FakeQuantize)
    assert isinstance(kernel.operator, FakeQuantize)
    np.testing.assert_array_equal(graph.parameters[kernel.inputs[0].name], weight.T)


# Refusals


def refusal(node: onnx.NodeProto, constants: Mapping[str, np.ndarray], opset: int = 21) -> str:
    graph = helper.make_graph(
        [node],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 4))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    with pytest.raises((UnsupportedOperatorError, GraphError)) as caught:
        from_onnx(model)
    return str(caught.value)


@pytest.mark.parametrize(
    ("scale", "zero", "words"),
    [
        (np.float32(0), np.uint8(0), "not above 0"),
        (np.float32(-1), np.uint8(0), "not above 0"),
        (np.float32(np.inf), np.uint8(0), "not finite"),
        (np.ones(3, np.float32), np.zeros(3, np.uint8), "a vector along axis 1, is needed"),
        (np.ones(4, np.float32), np.uint8(0), r"zero point of shape \(\)"),
        (np.float32(1), np.int64(0), "the integers' type is int64"),
    ],
)
def test_scales_that_are_none(scale: np.ndarray, zero: np.ndarray, words: str) -> None:
    text = refusal(helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"]), {"s": scale, "z": zero})
    assert re.search(words, text)
    assert text.startswith("y (QuantizeLinear): ")


def test_a_dynamic_scale_is_refused_with_the_reason() -> None:
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    assert "computed from the data while the network runs" in refusal(node, {})


def test_blocks_of_data_are_refused() -> None:
    node = helper.make_node("QuantizeLinear", ["x", "s"], ["y"], block_size=2, axis=1)
    assert "attribute block_size is 2" in refusal(node, {"s": np.ones((2, 2), np.float32)})
