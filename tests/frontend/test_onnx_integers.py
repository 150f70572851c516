"""ONNX models of integers alone are read integer for integer; those with a float are read as the real numbers meant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend import from_onnx
from mrt.symbol import Array

ENDS = np.array([-(2**31), -(2**31) + 1, -7, -1, 0, 1, 7, 2**31 - 2, 2**31 - 1], np.int32)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Array],
    constants: dict[str, Array],
    output: int = TensorProto.INT32,
) -> onnx.ModelProto:
    """The last node's output is y; inputs have the shapes and dtypes of arrays."""
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    stored = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", given, [helper.make_tensor_value_info("y", output, None)], stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made


def quotient(a: int, b: int) -> int:
    """Cut towards 0."""
    return abs(a) // b if a >= 0 else -(abs(a) // b)


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_quotients_and_remainders(operator: str, is_known: bool) -> None:
    """Of every small integer and of the ends of 32 bits, by Python's integers."""
    data = np.concatenate([np.arange(-40, 41, dtype=np.int32), ENDS])[:, None]
    divisors = np.array([*range(1, 20), 2**30, 2**31 - 1], np.int32)
    feeds = {"a": data} if is_known else {"a": data, "b": divisors}
    node = helper.make_node(operator, ["a", "b"], ["y"])
    graph = from_onnx(model([node], feeds, {"b": divisors} if is_known else {}))
    (found,) = graph.evaluate(feeds)
    meaning = quotient if operator == "Div" else lambda a, b: a % b
    assert graph.outputs[0].dtype == "int32"
    assert found.tolist() == [[meaning(int(a), int(b)) for b in divisors] for a in data[:, 0]]


@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_divisors_below_one_are_refused(operator: str) -> None:
    node, data = helper.make_node(operator, ["a", "b"], ["y"]), np.array([5, 6], np.int32)
    with pytest.raises(UnsupportedOperatorError, match=rf"{operator}.*a divisor is -2; 1 or more"):
        from_onnx(model([node], {"a": data}, {"b": np.array([3, -2], np.int32)}))
    feeds = {"a": data, "b": np.array([3, 0], np.int32)}
    with pytest.raises(GraphError, match="the divisor holds 0; 1 or more is needed"):
        from_onnx(model([node], feeds, {})).evaluate(feeds)


@pytest.mark.parametrize(
    ("operator", "is_known"), [("ConvInteger", True), ("MatMulInteger", True), ("MatMulInteger", False)]
)
def test_sums_of_products_are_int32(operator: str, is_known: bool) -> None:
    """Beyond 2^24, with a zero point for each column or filter, and a border that holds the zero point."""
    random = np.random.default_rng(0)
    is_convolution = operator == "ConvInteger"
    x = random.choice([0, 255], (1, 64, 6, 6) if is_convolution else (3, 700)).astype(np.uint8)
    w = random.choice([-128, 127], (3, 64, 3, 3) if is_convolution else (700, 3)).astype(np.int8)
    x[0], w[0 if is_convolution else (slice(None), 0)] = 255, -128
    zeros = {"xz": np.array(3, np.uint8), "wz": np.array([-5, 0, 9], np.int8) if not is_convolution else np.int8(7)}
    attributes = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]} if is_convolution else {}
    node = helper.make_node(operator, ["x", "w", "xz", "wz"], ["y"], **attributes)
    feeds = {"x": x} if is_known else {"x": x, "w": w}
    constants = {name: np.asarray(value) for name, value in zeros.items()}
    made = model([node], feeds, {**constants, "w": w} if is_known else constants)
    (found,) = from_onnx(made).evaluate(feeds)
    (expected,) = ReferenceEvaluator(made).run(None, feeds)
    assert found.dtype == np.int32 and abs(expected).max() > 2**24
    np.testing.assert_array_equal(found, expected)


def test_one_float_makes_them_stand_for_real_numbers() -> None:
    """As in dynamic quantization: what reads a sum of products of integers casts it to a float."""
    x, w = np.array([[3, 200]], np.uint8), np.array([[1], [-2]], np.int8)
    product = helper.make_node("MatMulInteger", ["x", "w"], ["sum"])
    cast = helper.make_node("Cast", ["sum"], ["y"], to=TensorProto.FLOAT)
    graph = from_onnx(model([product, cast], {"x": x}, {"w": w}, TensorProto.FLOAT))
    assert graph.outputs[0].dtype == "float32" and graph.evaluate({"x": x})[0].tolist() == [[-397.0]]
    whole = from_onnx(model([helper.make_node("MatMulInteger", ["x", "w"], ["y"])], {"x": x}, {"w": w}))
    assert whole.outputs[0].dtype == "int32" and whole.evaluate({"x": x})[0].tolist() == [[-397]]
