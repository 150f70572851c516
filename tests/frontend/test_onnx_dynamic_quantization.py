"""Dynamic quantization is read as the float that it stands for; ONNX Runtime's result is that but for its rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

import mrt
from mrt.errors import UnsupportedOperatorError
from mrt.frontend.onnx import from_onnx
from mrt.preparation import prepare
from mrt.symbol import Graph, NumpyRunner
from tests.frontend.test_onnx_quantization import MICROSOFT, model_of, run_plainly

RNG = np.random.default_rng(3)
MODEL_SEED = 4
X = RNG.normal(0, 1, (1, 3, 8, 8)).astype(np.float32)


def normal(*shape: int, rng: np.random.Generator = RNG) -> np.ndarray:
    return rng.normal(0, 0.4, shape).astype(np.float32)


def float_model() -> onnx.ModelProto:
    """A convolution, two layers, and the product of two computed tensors."""
    rng = np.random.default_rng(MODEL_SEED)
    shapes = {"w": (4, 3, 3, 3), "b": (4,), "first": (36, 6), "bias": (6,), "second": (6, 36)}
    constants = {name: normal(*shape, rng=rng) for name, shape in shapes.items()}
    constants["shape"] = np.array([0, 4, 36], np.int64)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"]),
        helper.make_node("Reshape", ["c", "shape"], ["rows"]),
        helper.make_node("MatMul", ["rows", "first"], ["m"]),
        helper.make_node("Add", ["m", "bias"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MatMul", ["r", "second"], ["back"]),
        helper.make_node("Transpose", ["rows"], ["columns"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["back", "columns"], ["y"]),
    ]
    return model_of(nodes, {"x": (TensorProto.FLOAT, X.shape)}, constants, {"y": TensorProto.FLOAT})


def dynamic_model(folder: Path, weight: QuantType) -> onnx.ModelProto:
    onnx.save(float_model(), folder / "float.onnx")
    quantize_dynamic(folder / "float.onnx", folder / "dynamic.onnx", weight_type=weight)
    return onnx.load(folder / "dynamic.onnx")


def weights_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """The real numbers that the quantized constants stand for, by the name of the float one."""
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return {
        name.removesuffix("_quantized"): (array.astype(np.float32) - found[name.replace("quantized", "zero_point")])
        * found[name.replace("quantized", "scale")]
        for name, array in found.items()
        if name.endswith("_quantized")
    }


@pytest.mark.parametrize("weight", [QuantType.QInt8, QuantType.QUInt8])
def test_it_is_the_float_network_of_its_weights(tmp_path: Path, weight: QuantType) -> None:
    model = dynamic_model(tmp_path, weight)
    assert {"DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"} <= {node.op_type for node in model.graph.node}
    graph = from_onnx(model)
    exact = float_model()
    rounded = weights_of(model)
    assert {"w", "first", "second"} <= rounded.keys()
    for tensor in exact.graph.initializer:
        if tensor.name in rounded:
            tensor.CopyFrom(numpy_helper.from_array(rounded[tensor.name].astype(np.float32), tensor.name))
    (found,), (wanted,), (dynamic,) = (
        graph.evaluate({"x": X}),
        run_plainly(exact, {"x": X}),
        run_plainly(model, {"x": X}),
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert np.abs(found - dynamic).max() < 0.1 * np.abs(wanted).max()
    (note,) = (note for note in prepare(graph).notes if "dynamic quantization" in note)
    assert "3 DynamicQuantizeLinear" in note


def test_it_is_quantized_anew(tmp_path: Path) -> None:
    graph = from_onnx(dynamic_model(tmp_path, QuantType.QInt8))
    samples = [RNG.normal(0, 1, (4, 3, 8, 8)).astype(np.float32) for _ in range(4)]
    model = mrt.quantize(graph, samples, mrt.QuantizationConfig(preset="fast"), runner=NumpyRunner())
    assert any("read as the float that it stands for" in note for note in model.notes)
    (found,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(samples[0][:1])))
    (wanted,) = graph.evaluate({"x": samples[0][:1]})
    assert np.square(found - wanted).sum() < 0.01 * np.square(wanted).sum()


def graph_of(
    node: onnx.NodeProto, before: list[onnx.NodeProto], constants: dict[str, np.ndarray]
) -> tuple[Graph, onnx.ModelProto]:
    model = model_of([*before, node], {"x": (TensorProto.FLOAT, (1, 4, 8))}, constants, {"y": TensorProto.FLOAT})
    return from_onnx(model), model


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("kind", ["DynamicQuantizeMatMul", "MatMulIntegerToFloat"])
def test_products_as_onnx_runtime_optimizes_them(kind: str, columns: bool, has_bias: bool) -> None:
    q = RNG.integers(-64, 64, (8, 5)).astype(np.int8)  # without VNNI ONNX Runtime adds up two products in 16 bits
    count = (5,) if columns else ()
    scale, zero = RNG.uniform(0.01, 0.02, count).astype(np.float32), RNG.integers(-5, 6, count).astype(np.int8)
    constants = {"q": q, "qs": scale, "qz": zero} | ({"bias": normal(5)} if has_bias else {})
    if kind == "DynamicQuantizeMatMul":
        before, inputs = [], ["x", "q", "qs", "qz"]
    else:
        before = [helper.make_node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"])]
        inputs = ["xq", "q", "xs", "qs", "xz", "qz"]
    node = helper.make_node(kind, inputs + (["bias"] if has_bias else []), ["y"], domain=MICROSOFT)
    graph, model = graph_of(node, before, constants)
    x = X.reshape(-1)[:32].reshape(1, 4, 8)
    wanted = x @ ((q.astype(np.float32) - zero) * scale) + (constants["bias"] if has_bias else 0)
    (found,), (dynamic,) = graph.evaluate({"x": x}), run_plainly(model, {"x": x})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert np.abs(found - dynamic).max() < 0.03 * np.abs(wanted).max()


@pytest.mark.parametrize("shown", ["xq", "xs", "xz"])
def test_what_else_reads_its_integers_is_refused(shown: str) -> None:
    """The integers themselves are none that a static network has."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"]),
        helper.make_node("MatMulInteger", ["xq", "q", "xz"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=1),
        helper.make_node("Mul", ["f", "xs"], ["y"]),
        helper.make_node("Cast", [shown], ["other"], to=1),
    ]
    constants = {"q": RNG.integers(-9, 9, (8, 5)).astype(np.int8)}
    outputs = {"y": TensorProto.FLOAT, "other": TensorProto.FLOAT}
    model = model_of(nodes, {"x": (TensorProto.FLOAT, (1, 4, 8))}, constants, outputs)
    with pytest.raises(UnsupportedOperatorError, match="DynamicQuantizeLinear.*computed from the data while"):
        from_onnx(model)
