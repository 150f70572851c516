"""Damaged and hostile ONNX models: one MRTError, at once, in little memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hostile import bounded, outcome
from hostile_onnx import HUGE, node, refused
from onnx import TensorProto, helper
from onnx_models import make_model, single

from mrt.errors import ModelFileError, MRTError
from mrt.frontend import load_model
from mrt.frontend.onnx import from_onnx

# Shapes and tensors


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((1, HUGE), "input x: a tensor of shape"),
        ((2**20, 2**20), "at most 2147483648 elements are allowed"),
        ((1, -3), "input x has the dynamic axis 1"),
        ((1, 0), "input x has the dynamic axis 1"),
    ],
)
def test_inputs_that_no_tensor_is(shape: tuple[int, ...], words: str) -> None:
    refused(single("Relu", shape), words)


def with_initializer(dims: tuple[int, ...], **content: Any) -> onnx.ModelProto:
    model = make_model([node("Add", "x w", "y")], {"x": (2, 3)})
    model.graph.initializer.append(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, **content))
    return model


@pytest.mark.parametrize(
    ("dims", "content", "words"),
    [
        ((2, 3), {"raw_data": bytes(20)}, r"tensor w: its values do not fill shape \(2, 3\) of FLOAT"),
        ((2, 3), {"raw_data": bytes(28)}, "tensor w: its values do not fill"),
        ((2, 3), {"raw_data": bytes(23)}, "tensor w: its values do not fill"),
        ((2, 3), {"float_data": [1.0] * 5}, "tensor w: its values do not fill"),
        ((2, 3), {"float_data": [1.0] * 7}, "tensor w: its values do not fill"),
        ((2, 3), {"int64_data": [1] * 6}, "tensor w: its values do not fill"),
        ((2, 3), {}, "tensor w: its values do not fill"),
        ((-1, 3), {"raw_data": bytes(24)}, "tensor w: a tensor of shape"),
        ((-2, -3), {"raw_data": bytes(24)}, "tensor w: a tensor of shape"),
        ((HUGE,), {"raw_data": bytes(24)}, "tensor w: a tensor of shape"),
        ((2**40, 2**40), {"raw_data": bytes(24)}, "tensor w: a tensor of shape"),
        ((0, 2**40), {}, "tensor w: a tensor of shape"),
        ((2**29,), {"raw_data": bytes(24)}, "tensor w: its values do not fill"),
    ],
)  # fmt: skip
def test_initializers_whose_bytes_and_shape_differ(dims: tuple[int, ...], content: dict[str, Any], words: str) -> None:
    refused(with_initializer(dims, **content), words)


@pytest.mark.parametrize("data_type", [0, 8, 14, 15, 17, 23, 99, 2**31 - 1])
def test_initializers_of_types_that_the_graph_has_not(data_type: int) -> None:
    model = with_initializer((2, 3), raw_data=bytes(24))
    model.graph.initializer[0].data_type = data_type
    refused(model, "w")


def test_an_initializer_that_is_missing() -> None:
    refused(make_model([node("Add", "x w", "y")], {"x": (2, 3)}), r"y \(Add\): reads w, which no input")
    refused(make_model([], {"x": (2, 3)}), "output y is given by no node")


# External data


def with_external(folder: Path, **entries: object) -> Path:
    model = with_initializer((2, 3), data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        model.graph.initializer[0].external_data.add(key=key, value=str(value))
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({}, "whose location is not given"),
        ({"location": "absent.bin"}, "absent.bin is missing"),
        ({"location": "."}, "is missing"),
        ({"location": "../w.bin"}, "lies outside the model's folder"),
        ({"location": "/etc/passwd"}, "lies outside the model's folder"),
        ({"location": "/dev/zero"}, "lies outside the model's folder"),
        ({"location": "a\x00b"}, "is no name that a file has"),
        ({"location": "a" * 5000}, "is no name that a file has|is missing"),
        ({"location": "w.bin", "length": "many"}, "is no number"),
        ({"location": "w.bin", "offset": "1e9"}, "is no number"),
        ({"location": "w.bin", "offset": -8}, "cannot be read at offset -8"),
        ({"location": "w.bin", "offset": 2**70}, "cannot be read at offset"),
        ({"location": "w.bin", "offset": 2**40}, "do not fill|ends after 0 of"),
        ({"location": "w.bin", "length": 23}, "23 bytes of external data are stated; 24 are needed"),
        ({"location": "w.bin", "length": 2**60}, "1152921504606846976 bytes of external data are stated"),
    ],
)
def test_external_data_that_lie(entries: dict[str, object], words: str, tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(64))
    with bounded(), pytest.raises(ModelFileError, match=words):
        load_model(with_external(tmp_path, **entries))


def test_of_a_large_file_of_external_data_no_more_is_read_than_the_tensor_has(tmp_path: Path) -> None:
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(2**34)
    with bounded():
        graph = load_model(with_external(tmp_path, location="w.bin"))
    np.testing.assert_array_equal(graph.parameters["w"], np.zeros((2, 3), np.float32))


# The structure


def nested(levels: int) -> bytes:
    """A model of nodes that hold graphs of nodes that hold graphs, …"""

    def field(number: int, content: bytes) -> bytes:
        length, size = len(content), bytearray()
        while length > 127:
            size.append(length & 127 | 128)
            length >>= 7
        return bytes([number << 3 | 2]) + bytes(size) + bytes([length]) + content

    graph = b""
    for _ in range(levels):
        attribute = field(1, b"then_branch") + field(6, graph) + b"\xa0\x01\x05"
        graph = field(1, field(2, b"y") + field(4, b"If") + field(5, attribute)) + field(12, field(1, b"y"))
    return b"\x08\x08" + field(7, graph) + field(8, b"\x10\x11")


@pytest.mark.parametrize("levels", [3, 30, 100, 5_000])
def test_graphs_in_graphs(levels: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(nested(levels))
    with bounded(), pytest.raises(MRTError, match=r"y \(If\): has 0 inputs; 1|no ONNX model, or a truncated one"):
        load_model(path)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([node("Add", "x y", "y")], "reads y, which no input"),
        ([node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")], "reads b, which no input"),
        ([node("Relu", "x", "y"), node("Relu", "x", "y")], "two values of the model are called y"),
        ([node("Split", "x", "y y")], "two values of the model are called y"),
        ([node("Relu", "x", "x"), node("Relu", "x", "y")], "two values of the model are called x"),
        ([node("Relu", "_", "y")], r"y \(Relu\)"),
        ([node("Relu", "", "y")], r"y \(Relu\)"),
        ([node("Gelu", "_", "y")], r"y \(Gelu\): input 0 is missing"),
        ([node("Concat", "", "y", axis=0)], r"y \(Concat\)"),
        ([node("Max", "", "y")], r"y \(Max\)"),
        ([node("Einsum", "", "y", equation="->")], r"y \(Einsum\)"),
        ([node("", "x", "y")], "1 operator not covered"),
        ([node("Relu", "x", "y", domain="a.b")], r"a\.b\.Relu"),
        ([node("Relu", "x", "y z"), node("Add", "y z", "w")], "output z|output y"),
    ],
)
def test_nodes_that_make_no_graph(nodes: list[onnx.NodeProto], words: str) -> None:
    outputs = ["w"] if any("w" in item.output for item in nodes) else ["y"]
    refused(make_model(nodes, {"x": (2, 3)}, outputs), words)


def test_two_of_one_name() -> None:
    model = make_model([node("Add", "a b", "y")], {"a": (2,), "b": (2,)})
    model.graph.input[1].name = "a"
    refused(model, "two values of the model are called a")
    model = with_initializer((2, 3), raw_data=bytes(24))
    model.graph.initializer.add().CopyFrom(model.graph.initializer[0])
    refused(model, "two values of the model are called w")


@pytest.mark.parametrize(
    "name", ["a b", "/a/b:0", "'\"`$(x)", "ü漢字😀", "..", "x" * 100_000, "%s{}\\", "a::b", "0", "x_"]
)
def test_names_of_odd_characters(name: str) -> None:
    """They stay, and do not get in the way of names that are made up."""
    nodes = [node("Relu", "x", "y"), helper.make_node("Gelu", ["y"], [name]), helper.make_node("Celu", [name], ["z"])]
    nodes[2].attribute.append(helper.make_attribute("alpha", 2.0))
    model = make_model(nodes, {"x": (2,)}, [name, "z", "y"], opset=20)
    graph = from_onnx(model)
    assert [symbol.name for symbol in graph.outputs] == [name, "z", "y"]
    assert graph.evaluate({"x": np.ones(2)})[2].tolist() == [1, 1]


@pytest.mark.parametrize("name", ["a\nb", "a\x00", "\x1b[2J", "\t"])
def test_names_that_are_no_line_of_text(name: str) -> None:
    model = make_model([helper.make_node("Relu", ["x"], [name])], {"x": (2,)}, [name])
    refused(model, "holds names that are no text")


# Functions


def with_functions(*bodies: tuple[str, list[onnx.NodeProto]]) -> onnx.ModelProto:
    model = make_model([node("f0", "x", "y", domain="local")], {"x": (2,)})
    model.opset_import.append(helper.make_opsetid("local", 1))
    for name, nodes in bodies:
        model.functions.append(
            helper.make_function(
                "local", name, ["a"], ["b"], nodes, [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
            )
        )
    return model


def call(name: str, source: str, target: str) -> onnx.NodeProto:
    return node(name, source, target, domain="local")


def test_functions_that_call_themselves() -> None:
    refused(with_functions(("f0", [call("f0", "a", "b")])), "function f0 calls itself; a graph has no recursion")
    ring = [(f"f{i}", [call(f"f{(i + 1) % 5}", "a", "b")]) for i in range(5)]
    refused(with_functions(*ring), "calls itself")


def test_functions_that_stand_for_endlessly_many_nodes() -> None:
    bodies = [(f"f{i}", [call(f"f{i + 1}", "a", "t"), call(f"f{i + 1}", "t", "b")]) for i in range(64)]
    refused(with_functions(*bodies, ("f64", [node("Relu", "a", "b")])), "stand for 18446744073709551616 nodes")


def test_functions_that_do_not_fit() -> None:
    refused(with_functions(("f1", [node("Relu", "a", "b")])), r"local\.f0")
    refused(with_functions(("f0", [node("Relu", "absent", "b")])), "f0|absent")
    model = with_functions(("f0", [node("Relu", "a", "b")]))
    model.graph.node[0].input.extend(["x"] * 5)
    outcome(lambda: from_onnx(model))
