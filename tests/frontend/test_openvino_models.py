"""Whole OpenVINO models: files, names, batches, weights that are stored quantized, and networks that were converted."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

openvino = pytest.importorskip("openvino")
from openvino import opset13 as ops  # noqa: E402
from openvino_models import Case, ints, normal, run_openvino  # noqa: E402

import mrt  # noqa: E402
from mrt.errors import GraphError, ModelFileError, MRTError  # noqa: E402
from mrt.frontend.formats import format_of  # noqa: E402
from mrt.frontend.openvino import from_openvino  # noqa: E402
from mrt.symbol import Graph  # noqa: E402
from mrt.symbol.operators.fake_quantize import FakeQuantize  # noqa: E402
from mrt.symbol.operators.integer import Dequantize  # noqa: E402


def network(x: Any) -> Any:
    weight = ops.constant(np.linspace(-1, 1, 54, dtype=np.float32).reshape(3, 2, 3, 3))
    return ops.relu(ops.convolution(x, weight, [1, 1], [1, 1], [1, 1], [1, 1]), name="out")


def saved(folder: Path, half: bool = False) -> Path:
    path = folder / "network.xml"
    openvino.save_model(Case(network, ((-1, 2, 4, 4),)).model(), path, compress_to_fp16=half)
    return path


# Files


@pytest.mark.parametrize("half", [False, True])
def test_a_file_is_read_by_its_content(tmp_path: Path, half: bool) -> None:
    path = saved(tmp_path, half)
    assert format_of(path).name == "openvino"
    graph = mrt.load_model(path, batch=3)
    assert [str(symbol) for symbol in graph.inputs] == [str(symbol) for symbol in from_openvino(path, 3).inputs]
    assert graph.inputs[0].shape == (3, 2, 4, 4)
    x = normal(3, 2, 4, 4)
    found = graph.evaluate({graph.inputs[0].name: x})[0]
    np.testing.assert_allclose(found, run_openvino(openvino.Core().read_model(path), [x])[0], rtol=1e-4, atol=1e-5)


def test_names_are_those_of_the_operators(tmp_path: Path) -> None:
    graph = from_openvino(saved(tmp_path))
    assert [symbol.name for symbol in (*graph.inputs, *graph.outputs)] == ["x0", "out"]


def test_files_that_are_not_there(tmp_path: Path) -> None:
    path = saved(tmp_path)
    path.with_suffix(".bin").unlink()
    with pytest.raises(ModelFileError, match=r"network\.bin does not exist; it holds the constants of .*network\.xml"):
        from_openvino(path)
    with pytest.raises(ModelFileError, match="other.xml does not exist"):
        from_openvino(tmp_path / "other.xml")
    with pytest.raises(ModelFileError, match="is a folder"):
        from_openvino(tmp_path)
    shutil.copy(__file__, tmp_path / "python.xml")
    (tmp_path / "python.bin").touch()
    with pytest.raises(ModelFileError, match="is no OpenVINO IR"):
        from_openvino(tmp_path / "python.xml")


def test_without_openvino_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = saved(tmp_path)
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MRTError, match=r"pip install 'mrt-quantizer\[openvino\]'"):
        mrt.load_model(path)


def test_a_batch_that_the_model_does_not_take() -> None:
    def build(x: Any) -> Any:
        return ops.reshape(x, ints(2, 6), False)

    with pytest.raises(GraphError, match=r"the model does not take inputs of the shapes x0: \(3, 2, 3\): "):
        from_openvino(Case(build, ((-1, 2, 3),)).model(), 3)
    assert from_openvino(Case(build, ((-1, 2, 3),)).model(), 2).outputs[0].shape == (2, 6)


# Weights that are stored quantized


def weight_of(graph: Graph) -> Any:
    return graph.outputs[0].inputs[1]


def dense(weight: Any, transposed: bool = True) -> Graph:
    """The graph of a dense layer with a weight, which gives what OpenVINO does."""
    case = Case(lambda x: ops.matmul(x, weight, False, transposed), ((2, 4),), tolerance=1e-4)
    x = normal(2, 4)
    return case.check([x], run_openvino(case.model(), [x]))


def stored(kind: str) -> Any:
    values = np.arange(12).reshape(3, 4) - (6 if kind.startswith("i") else 0)
    return ops.constant(values, dtype=getattr(openvino.Type, kind))


@pytest.mark.parametrize("kind", ["i8", "u8", "i4", "u4"])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("zero_point", ["none", "float", "integer"])
def test_compressed_weights(kind: str, half: bool, zero_point: str) -> None:
    """Constant → Convert → Subtract → Multiply, the floats perhaps of 16 bits: integers, scales and zero points."""
    real = np.float16 if half else np.float32
    scale, zero = np.array([[0.5], [0.25], [2]], real), np.array([[1], [2], [3]])
    value = ops.convert(stored(kind), "f16" if half else "f32")
    if zero_point == "float":
        value = ops.subtract(value, ops.constant(zero.astype(real)))
    elif zero_point == "integer":
        own = ops.constant(zero, dtype=getattr(openvino.Type, kind))
        value = ops.subtract(value, ops.convert(own, "f16" if half else "f32"))
    value = ops.multiply(value, ops.constant(scale))
    graph = dense(ops.convert(value, "f32") if half else value)
    weight = weight_of(graph)
    assert isinstance(weight.operator, Dequantize)
    integers, scales, zeros = (graph.parameters[symbol.name] for symbol in weight.inputs)
    assert integers.dtype == ("uint8" if kind.startswith("u") else "int8")
    np.testing.assert_array_equal(integers.ravel(), np.arange(12) - (6 if kind.startswith("i") else 0))
    np.testing.assert_array_equal(scales, scale.astype(np.float32))
    np.testing.assert_array_equal(zeros, zero if zero_point != "none" else 0)


@pytest.mark.parametrize("moved", ["transposed", "reshaped", "by the layer"])
def test_moved_weights(moved: str) -> None:
    """The integers move with their scales, in operators and in the layer."""
    value = ops.multiply(ops.convert(stored("i8"), "f32"), ops.constant(np.float32([[0.5], [0.25], [2]])))
    if moved == "reshaped":
        value = ops.reshape(ops.reshape(value, ints(3, 2, 2), False), ints(0, -1), True)
    elif moved == "transposed":
        value = ops.transpose(ops.transpose(value, ints(1, 0)), ints())
    else:
        value = ops.transpose(value, ints(1, 0))
    graph = dense(value, moved != "by the layer")
    weight = weight_of(graph)
    assert isinstance(weight.operator, Dequantize)
    np.testing.assert_array_equal(graph.parameters[weight.inputs[0].name], np.arange(12).reshape(3, 4) - 6)
    np.testing.assert_array_equal(graph.parameters[weight.inputs[1].name], [[0.5], [0.25], [2]])


def test_groups_keep_their_scales() -> None:
    """The axis of groups is merged into that of outputs, in the integers and in the scales."""
    integers, scale = np.arange(-18, 18).reshape(2, 3, 1, 3, 2), normal(2, 3, 1, 1, 1)

    def build(x: Any) -> Any:
        value = ops.multiply(ops.convert(ops.constant(integers.astype(np.int8)), "f32"), ops.constant(scale))
        return ops.group_convolution(x, value, [1, 1], [0, 0], [0, 0], [1, 1])

    case = Case(build, ((1, 2, 4, 4),), tolerance=1e-4)
    x = normal(1, 2, 4, 4)
    graph = case.check([x], run_openvino(case.model(), [x]))
    found, scales, _ = (graph.parameters[symbol.name] for symbol in weight_of(graph).inputs)
    np.testing.assert_array_equal(found, integers.reshape(6, 1, 3, 2))
    np.testing.assert_array_equal(scales, scale.reshape(6, 1, 1, 1))


def test_a_zero_point_that_is_no_integer_is_kept_exactly() -> None:
    """As a FakeQuantize that changes none of its values."""
    value = ops.subtract(ops.convert(stored("u8"), "f32"), ops.constant(np.float32([[0.5], [1.25], [-3]])))
    graph = dense(ops.multiply(value, ops.constant(np.float32([[0.5], [0.25], [2]]))))
    weight = weight_of(graph)
    assert isinstance(weight.operator, FakeQuantize)
    data, low, high = (graph.parameters[symbol.name] for symbol in weight.inputs[:3])
    np.testing.assert_allclose((high - low) / 255, [[0.5], [0.25], [2]], rtol=1e-6)
    np.testing.assert_allclose(graph.evaluate({"x0": np.eye(4, dtype=np.float32)[:2]})[0], data.T[:2], rtol=1e-6)


def test_weights_through_fake_quantize() -> None:
    def build(x: Any) -> Any:
        low, high = (ops.constant(np.float32([[end], [2 * end], [3 * end]])) for end in (-1, 1))
        weight = ops.constant(np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4))
        return ops.matmul(x, ops.fake_quantize(weight, low, high, low, high, 15), False, True)

    case = Case(build, ((2, 4),))
    x = normal(2, 4)
    graph = case.check([x], run_openvino(case.model(), [x]))
    assert isinstance(weight_of(graph).operator, FakeQuantize)


def test_integers_that_are_no_weights_are_computed() -> None:
    """Without a scale they are numbers as any."""
    graph = dense(ops.convert(stored("i8"), "f32"))
    assert weight_of(graph).is_variable


# Networks


@pytest.mark.parametrize("name", ["resnet20_cifar10.dyn", "mobilenet_v1_0.25_224", "kws_dscnn"])
def test_a_converted_network_is_the_one_that_onnx_gives(data_folder: Path, name: str) -> None:
    """The same operators but for average pooling, and the same outputs in float64."""
    path = data_folder / "models" / "onnx" / f"{name}.onnx"
    graph, other = from_openvino(openvino.convert_model(path)), mrt.from_onnx(path)
    x = normal(*graph.inputs[0].shape)
    found, expected = (net.evaluate({net.inputs[0].name: x})[0] for net in (graph, other))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert len(graph.operators) <= len(other.operators)
