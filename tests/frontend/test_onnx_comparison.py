"""Comparisons and logic of ONNX, against ONNX Runtime: truth values are 1 and 0."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import make_model, run_onnxruntime

from mrt import quantize
from mrt.frontend.onnx import from_onnx
from mrt.symbol import Graph, NumpyRunner

COMPARISONS = ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
NUMBERS = np.array([-3, -1, 0, 1, 1, 3], np.float64)


def agrees(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> Graph:
    graph = from_onnx(model)
    for got, wanted in zip(graph.evaluate(feeds), run_onnxruntime(model, feeds), strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_array_equal(got, wanted.astype(got.dtype))
    return graph


@pytest.mark.parametrize("op_type", COMPARISONS)
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64])
@pytest.mark.parametrize("opset", [9, 12, 13, 16, 21])
def test_comparisons(op_type: str, kind: int, opset: int) -> None:
    if (op_type.endswith("OrEqual") and opset < 12) or (op_type == "Equal" and kind == 1 and opset < 11):
        pytest.skip("OrEqual exists from opset 12 on, Equal of floats from 11 on")
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    pairs = np.array([*itertools.product(NUMBERS, NUMBERS)]).T.astype(dtype)
    node = helper.make_node(op_type, ["a", "b"], ["y"])
    kinds = {"a": kind, "b": kind, "y": TensorProto.BOOL}
    agrees(make_model([node], {"a": (36,), "b": (36,)}, dtypes=kinds, opset=opset), {"a": pairs[0], "b": pairs[1]})
    broadcast = make_model([node], {"a": (6, 1), "b": (6,)}, dtypes=kinds, opset=opset)
    agrees(broadcast, {"a": NUMBERS.astype(dtype)[:, None], "b": NUMBERS.astype(dtype)})
    number = make_model([node], {"a": (6,)}, ["y"], {"b": np.asarray(1, dtype)}, opset, kinds)
    agrees(number, {"a": NUMBERS.astype(dtype)})
    left = make_model([node], {"b": (6,)}, ["y"], {"a": np.asarray(1, dtype)}, opset, kinds)
    agrees(left, {"b": NUMBERS.astype(dtype)})


def test_numbers_next_to_each_other() -> None:
    """The difference of two floats is 0 only where they are equal."""
    x = np.array([1e-45, 1.0, 1e38, 0.0], np.float32)
    feeds = {"a": x, "b": np.nextafter(x, np.float32(np.inf))}
    for op_type in COMPARISONS:
        node = helper.make_node(op_type, ["a", "b"], ["y"])
        agrees(make_model([node], {"a": (4,), "b": (4,)}, dtypes={"y": TensorProto.BOOL}), feeds)


@pytest.mark.parametrize("op_type", ["And", "Or", "Xor"])
def test_logic(op_type: str) -> None:
    node = helper.make_node(op_type, ["a", "b"], ["y"])
    kinds = dict.fromkeys("aby", TensorProto.BOOL)
    values = np.array([False, True])
    agrees(make_model([node], {"a": (2, 1), "b": (2,)}, dtypes=kinds), {"a": values[:, None], "b": values})
    agrees(make_model([node], {"a": (2,), "b": (2,)}, dtypes=kinds), {"a": values, "b": values[::-1]})
    agrees(make_model([node], {"a": (2,)}, ["y"], {"b": values}, dtypes=kinds), {"a": values[::-1]})
    agrees(make_model([node], {"b": (2,)}, ["y"], {"a": np.True_}, dtypes=kinds), {"b": values})


def test_not() -> None:
    kinds = {"a": TensorProto.BOOL, "y": TensorProto.BOOL}
    node = helper.make_node("Not", ["a"], ["y"])
    agrees(make_model([node], {"a": (2,)}, dtypes=kinds), {"a": np.array([False, True])})


def test_real_numbers_and_truth_become_truth() -> None:
    """What is cast to bool holds where it is not 0; a comparison's result, cast, stays; both can be integers."""
    nodes = [
        helper.make_node("Cast", ["x"], ["any"], to=TensorProto.BOOL),
        helper.make_node("Where", ["any", "x", "one"], ["y"]),
        helper.make_node("Greater", ["x", "one"], ["above"]),
        helper.make_node("Cast", ["above"], ["still"], to=TensorProto.BOOL),
        helper.make_node("Where", ["still", "x", "one"], ["z"]),
    ]
    model = make_model(nodes, {"x": (1, 4)}, ["y", "z"], {"one": np.float32(1)})
    x = np.array([[-3, 0, 0.5, 2]], np.float32)
    agrees(model, {"x": x})
    made = quantize(from_onnx(model), [{"x": x}], runner=NumpyRunner())
    y, z = made.dequantize_outputs(made.graph.evaluate(made.quantize_inputs(x)))
    np.testing.assert_allclose(y, [[-3, 1, 0.5, 2]], atol=0.02)
    np.testing.assert_allclose(z, [[1, 1, 1, 2]], atol=0.02)


def test_truth_values_go_on() -> None:
    """Comparisons feed logic, casts, arithmetic and choices; places are compared with integers."""
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["above"]),
        helper.make_node("Less", ["x", "one"], ["below"]),
        helper.make_node("And", ["above", "below"], ["inside"]),
        helper.make_node("Xor", ["inside", "flag"], ["other"]),
        helper.make_node("Not", ["inside"], ["outside"]),
        helper.make_node("Cast", ["inside"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "number"], ["kept"]),
        helper.make_node("Where", ["other", "kept", "one"], ["y"]),
        helper.make_node("ArgMax", ["x"], ["place"], axis=1, keepdims=1),
        helper.make_node("Equal", ["place", "two"], ["is_two"]),
        helper.make_node("Cast", ["is_two"], ["z"], to=TensorProto.INT64),
        helper.make_node("Equal", ["outside", "flag"], ["same"]),
        helper.make_node("Cast", ["same"], ["w"], to=TensorProto.FLOAT),
    ]
    constants = {"zero": np.float32(0), "one": np.float32(1), "two": np.full((2, 1), 2)}
    model = make_model(
        nodes, {"x": (2, 4), "flag": (4,)}, ["y", "z", "w"], constants,
        dtypes={"flag": TensorProto.BOOL, "z": TensorProto.INT64},
    )  # fmt: skip
    x = np.array([[-1, 0.5, 2, 0], [1, 0.25, 0.5, 9]], np.float32)
    agrees(model, {"x": x, "flag": np.array([True, False, True, False])})
