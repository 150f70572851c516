"""Sizes that a file leaves open, and inputs that are constants, as a user gives them; ONNX Runtime and torch decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import make_model

import mrt
from mrt.errors import ConfigError, GraphError
from mrt.frontend import from_onnx
from mrt.frontend.shared.inputs import StatedInput, fixed_inputs, read_options

ort = pytest.importorskip("onnxruntime")
node = helper.make_node


def random(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def run(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def image_model() -> onnx.ModelProto:
    """A network of any height and width that computes with them: what reshapes and resizes derive from shapes."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("Shape", ["c"], ["s"]),
        node("Slice", ["s", "zero", "two"], ["front"]),
        node("Concat", ["front", "minus"], ["target"], axis=0),
        node("Reshape", ["c", "target"], ["y"]),
    ]
    constants = {"w": random(4, 3, 3, 3), "zero": np.array([0]), "two": np.array([2]), "minus": np.array([-1])}
    return make_model(nodes, {"x": ("N", 3, "height", "width")}, constants=constants)


def test_given_shapes_fix_what_the_file_leaves_open() -> None:
    x = random(2, 3, 6, 10)
    graph = from_onnx(image_model(), shapes={"x": x.shape})
    assert graph.outputs[0].shape == (2, 4, 60)
    np.testing.assert_allclose(graph.evaluate({"x": x})[0], run(image_model(), {"x": x})[0], atol=1e-5)


def test_what_is_open_is_listed_with_the_option_that_fixes_it() -> None:
    with pytest.raises(GraphError) as caught:
        from_onnx(image_model())
    assert "--shape x=1,3,height,width with numbers" in str(caught.value)
    assert "model.shapes: {x: [1, 3, height, width]}" in str(caught.value)


@pytest.mark.parametrize("shape", [(1, 4, 6, 6), (1, 3, 6)])
def test_a_shape_that_the_file_contradicts(shape: tuple[int, ...]) -> None:
    with pytest.raises(GraphError, match=r"input x: the shape .* is given; the file needs \(N, 3, height, width\)"):
        from_onnx(image_model(), shapes={"x": shape})


def test_a_symbolic_size_is_the_same_in_every_input() -> None:
    model = make_model([node("Add", ["a", "b"], ["y"])], {"a": ("N", "T"), "b": (1, "T")})
    graph = from_onnx(model, batch=2, shapes={"b": (1, 7)})
    assert [symbol.shape for symbol in graph.inputs] == [(2, 7), (1, 7)]
    with pytest.raises(GraphError, match="input b: 8 is given for axis 1, which the file calls T; a gives 7"):
        from_onnx(model, shapes={"a": (2, 7), "b": (1, 8)})


def test_an_input_of_unknown_rank_takes_the_shape_that_is_given() -> None:
    model = make_model([node("Relu", ["x"], ["y"])], {"x": (1,)})
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert from_onnx(model, shapes={"x": (2, 5)}).outputs[0].shape == (2, 5)


def switch() -> onnx.ModelProto:
    """What a rate decides is computed while reading, down to a shape: r = x reshaped to (N, rate / 4)."""
    nodes = [
        node("Div", ["rate", "four"], ["length"]),
        node("Unsqueeze", ["length", "zero"], ["row"]),
        node("Concat", ["minus", "row"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["y"]),
    ]
    constants = {"four": np.array(4), "zero": np.array([0]), "minus": np.array([-1])}
    return make_model(nodes, {"x": (2, 6), "rate": ()}, constants=constants, dtypes={"rate": TensorProto.INT64})


@pytest.mark.parametrize("rate", [12, np.array(8, np.int32), 12.0])
def test_a_value_makes_an_input_a_constant(rate: Any) -> None:
    graph = from_onnx(switch(), values={"rate": rate})
    assert [symbol.name for symbol in graph.inputs] == ["x"]
    x = random(2, 6)
    (expected,) = run(switch(), {"x": x, "rate": np.array(rate, np.int64)})
    np.testing.assert_array_equal(graph.evaluate({"x": x})[0], expected)


def test_one_number_fills_its_input_which_shares_sizes() -> None:
    model = make_model([node("Mul", ["a", "b"], ["y"])], {"a": ("N", "T"), "b": ("N", "T")})
    graph = from_onnx(model, shapes={"a": (2, 3)}, values={"b": 2})
    np.testing.assert_array_equal(graph.parameters["b"], np.full((2, 3), 2, np.float32))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"rate": 1.5}, "input rate: the value 1.5 is given, which its dtype int64 does not hold"),
        ({"rate": [1, 2]}, r"input rate: the shape \(2,\) is given; the file needs \(\)"),
        ({"rte": 1}, "values are given for rte, which no input is called; the inputs are x, rate"),
        ({"rate": "16000"}, "the value given for input rate is '16000'; numbers are needed"),
        ({"rate": [[1], [2, 3]]}, "the value given for input rate"),
        (16000, "values is 16000; a mapping"),
    ],
)
def test_values_that_do_not_fit(values: Any, reason: str) -> None:
    with pytest.raises(GraphError, match=reason):
        from_onnx(switch(), values=values)


@pytest.mark.parametrize(
    ("dtype", "value", "holds"),
    [
        ("int8", 127, True),
        ("int8", 128, False),
        ("uint8", -1, False),
        ("bool", 1, True),
        ("bool", 2, False),
        ("float32", 1e300, False),
        ("float32", float("-inf"), True),
    ],
)
def test_a_value_is_one_of_the_input_s_dtype(dtype: str, value: float, holds: bool) -> None:
    stated, options = [StatedInput("x", (2,), dtype)], read_options(values={"x": value})
    if not holds:
        with pytest.raises(GraphError, match="does not hold"):
            fixed_inputs(stated, options)
        return
    (fixed,) = fixed_inputs(stated, options)
    assert fixed.value is not None and fixed.value.dtype == dtype and fixed.value.tolist() == [value, value]


def test_a_configuration_and_the_command_give_them(tmp_path: Path) -> None:
    from mrt.config import load_config

    onnx.save(image_model(), tmp_path / "net.onnx")
    (tmp_path / "run.yaml").write_text("model: {path: net.onnx, values: {sr: [1, 2]}}\n")
    config = load_config(tmp_path / "run.yaml", shapes=["x.1=1,3,4,4", "y=2"])
    assert (config.model.shapes, config.model.values) == ({"x.1": (1, 3, 4, 4), "y": (2,)}, {"sr": [1, 2]})
    for text in ("x", "=1", "x=", "x=1,a", "x=1,-2"):
        with pytest.raises(ConfigError, match="--shape"):
            load_config(tmp_path / "run.yaml", shapes=[text])


# Other formats


def test_torch_is_traced_again_for_given_sizes_and_values() -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, mask: Any) -> Any:
            return (x * mask.unsqueeze(-1)).reshape(x.shape[0], -1)

    length, batch = torch.export.Dim("length", min=2), torch.export.Dim("batch")
    dynamic = ({0: batch, 1: length}, {0: batch, 1: length})
    example = (torch.ones(2, 5, 3), torch.ones(2, 5))
    program = torch.export.export(Net().eval(), example, dynamic_shapes=dynamic)
    x, mask = random(1, 7, 3), np.array([[1, 1, 1, 0, 0, 0, 0]], np.float32)
    expected = Net()(torch.tensor(x), torch.tensor(mask)).numpy()
    graph = mrt.from_torch(program, shapes={"x": (1, 7, 3)})
    np.testing.assert_array_equal(graph.evaluate({"x": x, "mask": mask})[0], expected)
    graph = mrt.from_torch(program, shapes={"x": (1, 7, 3)}, values={"mask": mask})
    assert [symbol.name for symbol in graph.inputs] == ["x"]
    np.testing.assert_array_equal(graph.evaluate({"x": x})[0], expected)


def test_openvino_infers_from_given_shapes_and_values() -> None:
    ov = pytest.importorskip("openvino")
    from openvino import opset13 as ops

    x = ops.parameter([-1, 3, -1], np.float32, name="x")
    length = ops.parameter([], np.int64, name="length")
    target = ops.concat([ops.constant(np.array([-1])), ops.unsqueeze(length, 0)], 0)
    model = ov.Model([ops.reshape(x, target, False)], [x, length], "net")
    graph = mrt.from_openvino(model, shapes={"x": (2, 3, 4)}, values={"length": 6})
    given = random(2, 3, 4)
    np.testing.assert_array_equal(graph.evaluate({"x": given})[0], given.reshape(-1, 6))
    assert model.inputs[0].partial_shape.is_dynamic  # the one that is given stays what it was


def test_relay_and_mxnet_take_them_as_they_take_parameters() -> None:
    text = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(?, ?), float32], %y: Tensor[(1, 3), float32]) {\n'
    graph = mrt.from_relay(text + "  add(%x, %y)\n}\n", shapes={"x": (2, 3)}, values={"y": [[1, 2, 3]]})
    assert [(symbol.name, symbol.shape) for symbol in graph.inputs] == [("x", (2, 3))]
    np.testing.assert_array_equal(graph.evaluate({"x": np.zeros((2, 3))})[0], [[1, 2, 3]] * 2)
    symbol = (
        '{"nodes": [{"op": "null", "name": "a", "inputs": []}, {"op": "null", "name": "b", "inputs": []}, '
        '{"op": "broadcast_add", "name": "c", "inputs": [[0, 0, 0], [1, 0, 0]]}], '
        '"arg_nodes": [0, 1], "heads": [[2, 0, 0]], "attrs": {"mxnet_version": ["int", 10500]}}'
    )
    graph = mrt.from_mxnet(symbol, {}, {"a": (2, 3)}, values={"b": [[1, 2, 3]]})
    np.testing.assert_array_equal(graph.evaluate({"a": np.zeros((2, 3))})[0], [[1, 2, 3]] * 2)


def test_relax_binds_symbolic_sizes() -> None:
    relax = pytest.importorskip("tvm").relax
    from tvm import tirx

    n, t = tirx.Var("n", "int64"), tirx.Var("t", "int64")
    x, y = relax.Var("x", relax.TensorType((n, t), "float32")), relax.Var("y", relax.TensorType((1, t), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.add(x, y))
        builder.emit_func_output(out)
    graph = mrt.from_relax(builder.get(), shapes={"x": (2, 5)}, values={"y": 3})
    assert [(symbol.name, symbol.shape) for symbol in graph.inputs] == [("x", (2, 5))]
    np.testing.assert_array_equal(graph.evaluate({"x": np.zeros((2, 5))})[0], np.full((2, 5), 3))
