"""prepare.split while a file is read: what follows it and cannot be read is left out; refusals name the option."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import yaml
from onnx import TensorProto, helper
from onnx_models import make_model

import mrt
from mrt.errors import ConfigError, UnsupportedOperatorError
from mrt.frontend import from_onnx, load_model
from mrt.preparation import PreparationConfig, prepare

node = helper.make_node


def random(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def detector() -> onnx.ModelProto:
    """Boxes and scores, of which an operator that nobody has makes detections; `size` is read behind it only."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], kernel_shape=[1, 1]),
        node("Relu", ["c"], ["r"]),
        node("Sigmoid", ["r"], ["scores"]),
        node("Shape", ["r"], ["shape"]),
        node("Cast", ["shape"], ["sizes"], to=TensorProto.FLOAT),
        node("Unknown", ["r", "scores", "sizes", "size"], ["/kept:0"], domain="acme"),
        node("Other", ["/kept:0"], ["detections"], domain="acme"),
        node("Unknown", ["scores"], ["second"], domain="acme"),
        node("Neg", ["r"], ["side"]),
    ]
    inputs = {"x": (1, 3, 4, 4), "size": (1, 2)}
    outputs = ["detections", "second", "side"]
    model = make_model(nodes, inputs, outputs, constants={"w": random(5, 3, 1, 1)})
    model.opset_import.append(helper.make_opsetid("acme", 1))
    return model


SPLIT = ["/kept:0", "sec*"]


def test_what_follows_a_split_need_not_be_covered() -> None:
    graph = from_onnx(detector(), split=SPLIT)
    assert [symbol.name for symbol in graph.outputs] == ["r", "scores", "side"]
    assert [symbol.name for symbol in graph.inputs] == ["x"]
    assert graph.left_out == {"/kept:0": "acme.Unknown", "detections": "acme.Other", "second": "acme.Unknown"}
    front = detector()
    kept = [item for item in front.graph.node if item.domain != "acme"]
    del front.graph.node[:], front.graph.output[:], front.graph.input[1:]
    front.graph.node.extend(kept)
    front.graph.output.extend(helper.make_tensor_value_info(o.name, TensorProto.FLOAT, None) for o in graph.outputs)
    x = random(1, 3, 4, 4)
    expected = onnxruntime.InferenceSession(front.SerializeToString()).run(None, {"x": x})
    for found, wanted in zip(graph.evaluate({"x": x}), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_preparing_by_the_same_split_says_what_was_left_out() -> None:
    prepared = prepare(from_onnx(detector(), split=SPLIT), PreparationConfig(split=tuple(SPLIT)))
    assert prepared.postprocess is None
    (note,) = prepared.notes
    assert "3 operators: acme.Unknown ×2, acme.Other ×1" in note and "outputs are r, scores, side" in note


def test_what_can_be_read_behind_a_split_stays_postprocessing() -> None:
    model = make_model(
        [node("Relu", ["x"], ["r"]), node("Erf", ["r"], ["e"]), node("Neg", ["e"], ["y"])], {"x": (1, 4)}
    )
    graph = from_onnx(model, split=["e"])
    assert [symbol.name for symbol in graph.outputs] == ["y"] and not graph.left_out
    prepared = prepare(graph, PreparationConfig(split=("e",)))
    assert prepared.postprocess is not None and [s.name for s in prepared.graph.outputs] == ["r"]
    assert not prepared.notes


def test_a_split_in_front_of_nothing_that_fails_does_not_hide_it() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"acme\.Unknown ×1 \(/kept:0\)"):
        from_onnx(detector(), split=["second", "detections"])
    with pytest.raises(ConfigError, match="'kept' matches no operator of the model; the nearest names are .*/kept:0"):
        from_onnx(detector(), split=["kept"])


def test_a_refusal_lists_all_and_its_option_cuts_the_model_there(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOperatorError) as caught:
        from_onnx(detector())
    said = str(caught.value)
    assert "uses 2 operators not covered: acme.Unknown ×2 (/kept:0, second); acme.Other ×1 (detections)" in said
    before, _, option = said.partition("to end it before them, with ")
    assert before and option.startswith("6 of its 9 operators: in Python preparation=mrt.PreparationConfig(split=")
    in_python, in_yaml = re.findall(r"split=(\[.*?\])\)|prepare: \{split: (\[.*?\])\}", option)
    assert ast.literal_eval(in_python[0]) == yaml.safe_load(in_yaml[1]) == ["/kept:0", "second"]
    key, _, value = shlex.split(option)[-1].partition("=")
    assert (key, yaml.safe_load(value)) == ("prepare.split", ["/kept:0", "second"])
    onnx.save(detector(), tmp_path / "net.onnx")
    assert len(load_model(tmp_path / "net.onnx", split=yaml.safe_load(value)).outputs) == 3


def test_no_option_where_nothing_would_be_left() -> None:
    model = make_model([node("Unknown", ["x"], ["u"], domain="acme"), node("Relu", ["u"], ["y"])], {"x": (1,)})
    with pytest.raises(UnsupportedOperatorError) as caught:
        from_onnx(model)
    assert "prepare.split" not in str(caught.value)


def test_a_remedy_is_named_once_for_its_operators() -> None:
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("RandomNormalLike", ["r"], ["s"]),
        node("RandomUniformLike", ["s"], ["y"]),
    ]
    with pytest.raises(UnsupportedOperatorError, match="; RandomNormalLike, RandomUniformLike: make the noise an "):
        from_onnx(make_model(nodes, {"x": (1, 64, 1)}))


def test_operators_without_an_integer_form_name_the_option_that_leaves_them_to_postprocessing() -> None:
    from mrt.quantization.expansion import check_covered
    from mrt.symbol import Graph, GraphBuilder, Operator, TensorType

    class Odd(Operator):
        op = "odd"

        def infer(self, x: TensorType) -> TensorType:
            return x

    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 4)))
    first = builder.apply(Odd(), [x], "first one")
    graph: Graph = builder.graph([builder.apply(Odd(), [first], "second")])
    with pytest.raises(UnsupportedOperatorError) as caught:
        check_covered(graph)
    assert "odd (2: first one, second)" in str(caught.value)
    assert shlex.split(str(caught.value))[-1] == 'prepare.split=["first one"]'


# Other formats


def test_mxnet_and_openvino_are_cut_too() -> None:
    symbol = (
        '{"nodes": [{"op": "null", "name": "a", "inputs": []}, {"op": "relu", "name": "r", "inputs": [[0, 0, 0]]}, '
        '{"op": "erfinv", "name": "e", "inputs": [[1, 0, 0]]}], '
        '"arg_nodes": [0], "heads": [[2, 0, 0]], "attrs": {"mxnet_version": ["int", 10500]}}'
    )
    graph = mrt.from_mxnet(symbol, {}, {"a": (2, 3)}, split=["e"])
    assert [output.name for output in graph.outputs] == ["r"] and graph.left_out == {"e": "erfinv"}
    with pytest.raises(UnsupportedOperatorError, match=r"erfinv ×1 \(e\); replace them"):
        mrt.from_mxnet(symbol, {}, {"a": (2, 3)})
    ov = pytest.importorskip("openvino")
    from openvino import opset13 as ops

    x = ops.parameter([1, 3, 8], np.float32, name="x")
    middle = ops.relu(x, name="middle")
    last = ops.bucketize(middle, np.array([0.0, 1.0], np.float32), name="last")
    model = ov.Model([last], [x], "net")
    graph = mrt.from_openvino(model, split=["last"])
    assert [output.name for output in graph.outputs] == ["middle"] and graph.left_out == {"last": "Bucketize"}
    given = random(1, 3, 8)
    np.testing.assert_array_equal(graph.evaluate({"x": given})[0], np.maximum(given, 0))


def test_a_program_of_torch_is_cut() -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            rows = torch.relu(x) * 2
            return torch.linalg.eigvals(rows), rows.sum(1)

    program = torch.export.export(Net().eval(), (torch.ones(1, 4, 4),))
    with pytest.raises(UnsupportedOperatorError) as caught:
        mrt.from_torch(program)
    key, _, value = shlex.split(str(caught.value))[-1].partition("=")
    assert key == "prepare.split"
    graph = mrt.from_torch(program, split=yaml.safe_load(value))
    x = random(1, 4, 4)
    rows = np.maximum(x, 0) * 2
    for found, expected in zip(graph.evaluate({"x": x}), (rows, rows.sum(1)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_tflite_is_cut_with_sizes_and_values_given() -> None:
    pytest.importorskip("tflite")
    from tflite_files import File

    file = File()
    x = file.input((1, 1, 4), name="x", signature=[-1, -1, 4])
    gain = file.input((1,), name="gain", dtype="int8", scales=[0.5], zero_points=[1])
    real, product = file.tensor((1,), name="real"), file.tensor((1, 1, 4), name="product", signature=[-1, -1, 4])
    last = file.tensor((1, 1, 4), name="last", signature=[-1, -1, 4])
    file.operator("DEQUANTIZE", [gain], [real])
    file.operator("MUL", [x, real], [product], "MulOptions")
    file.operator("RFFT2D", [product], [last])
    graph = mrt.from_tflite(file.write([last]), shapes={"x": (2, 3, 4)}, values={"gain": 7}, split=["last"])
    assert [(s.name, s.shape) for s in graph.outputs] == [("product", (2, 3, 4))] and [*graph.left_out] == ["last"]
    given = random(2, 3, 4)
    np.testing.assert_allclose(graph.evaluate({"x": given})[0], given * 3.0, rtol=1e-6)
    with pytest.raises(UnsupportedOperatorError, match=r"2 of its 3 operators: .*--set 'prepare\.split=\[last\]'"):
        mrt.from_tflite(file.write([last]), values={"gain": 7})
