"""Damaged and hostile ONNX models: one MRTError, at once, in little memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hostile import bounded, outcome
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx_models import make_model, single

from mrt.errors import GraphError, ModelFileError, MRTError, UnsupportedOperatorError
from mrt.frontend import load_model
from mrt.frontend.onnx import from_onnx

RNG = np.random.default_rng(12)
HUGE = 2**62


def node(op_type: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    """A node whose inputs and outputs are given as words; `_` stands for one left out."""
    return helper.make_node(
        op_type, ["" if name == "_" else name for name in inputs.split()], outputs.split(), **attributes
    )


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def refused(model: onnx.ModelProto, words: str, megabytes: int = 64) -> None:
    with bounded(megabytes), pytest.raises(MRTError, match=words) as caught:
        from_onnx(model)
    assert "\n" not in str(caught.value)


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
    with bounded(), pytest.raises(MRTError, match="If ×1|no ONNX model, or a truncated one"):
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


# Numbers that ask for much


def constant_case(op_type: str, *arrays: np.ndarray, opset: int = 17, **attributes: object) -> onnx.ModelProto:
    """A node on constants alone, its result added to the input."""
    constants = {f"c{place}": np.asarray(array) for place, array in enumerate(arrays)}
    nodes = [
        helper.make_node(op_type, list(constants), ["made"], **attributes),
        node("Cast", "made", "f", to=TensorProto.FLOAT),
        node("Add", "x f", "y"),
    ]
    return make_model(nodes, {"x": (1,)}, constants=constants, opset=opset)


WIDE = np.zeros((1, 2**20), np.float32)
ASKING = {
    "ConstantOfShape": constant_case("ConstantOfShape", ints(2**20, 2**20)),
    "ConstantOfShape of a negative": constant_case("ConstantOfShape", ints(-1)),
    "Expand": constant_case("Expand", WIDE, ints(2**20, 1)),
    "Tile": constant_case("Tile", WIDE, ints(2**20, 1)),
    "Range": constant_case("Range", np.int64(0), np.int64(2**60), np.int64(1)),
    "Range of no step": constant_case("Range", np.float32(0), np.float32(1), np.float32(0)),
    "Range to infinity": constant_case("Range", np.float32(0), np.float32(np.inf), np.float32(1)),
    "OneHot": constant_case("OneHot", ints(*range(1000)), ints(2**50), np.zeros(2, np.float32)),
    "Pad": constant_case("Pad", WIDE, ints(0, 2**50, 0, 0)),
    "Pad of rows": constant_case("Pad", WIDE, ints(2**20, 0, 0, 0), mode="edge"),
    "Add": constant_case("Add", WIDE, WIDE.T),
    "Where": constant_case("Where", WIDE > 0, WIDE.T, WIDE),
    "MatMul": constant_case("MatMul", WIDE.T, WIDE),
    "Gemm": constant_case("Gemm", WIDE, WIDE, transA=1),
    "Gather": constant_case("Gather", WIDE, np.zeros(1000, np.int64), axis=0),
    "GatherND": constant_case("GatherND", WIDE, np.zeros((2**20, 1), np.int64)),
    "ScatterND": constant_case("ScatterND", WIDE[0], np.zeros((2**22, 1), np.int64), np.zeros(2**22, np.float32)),
    "Slice": constant_case("Slice", WIDE, ints(0), ints(1), ints(7)),
    "Reshape": constant_case("Reshape", WIDE, ints(2**40, -1)),
    "Unsqueeze": constant_case("Unsqueeze", WIDE, ints(2**40)),
    "Cast": constant_case("Cast", ints(1), to=2**31 - 1),
    "CumSum": constant_case("CumSum", WIDE, np.int64(9)),
    "Compress": constant_case("Compress", WIDE, np.ones(7, bool), axis=5),
}  # fmt: skip


@pytest.mark.parametrize("case", ASKING)
def test_constants_that_are_asked_for(case: str) -> None:
    refused(ASKING[case], "made|y ", megabytes=128)


def test_constants_that_double() -> None:
    nodes = [node("Concat", f"c{i} c{i}", f"c{i + 1}", axis=0) for i in range(60)]
    model = make_model([*nodes, node("Add", "x c60", "y")], {"x": (1,)}, constants={"c0": np.zeros(8, np.float32)})
    refused(model, r"c\d+ \(Concat\): cannot be computed .* the result would have about", megabytes=300)


def test_constants_that_are_many() -> None:
    """Each is small enough, all of them together are not."""
    nodes = [node("ConstantOfShape", "size", f"c{i}") for i in range(200)]
    total = node("Sum", " ".join(["x", *(f"c{i}" for i in range(200))]), "y")
    model = make_model([*nodes, total], {"x": (1,)}, constants={"size": ints(2**20)})
    refused(model, "the constants of the model allow", megabytes=300)


def data_case(
    op_type: str, *arrays: object, shape: tuple[int, ...] = (1, 2, 4, 4), opset: int = 17, **attributes: object
) -> onnx.ModelProto:
    """A node on the input `x` and constants after it, None where one is left out."""
    constants = {f"c{i}": np.asarray(array) for i, array in enumerate(arrays) if array is not None}
    names = ["x", *(f"c{i}" if array is not None else "" for i, array in enumerate(arrays))]
    return single(op_type, shape, constants, opset, names, **attributes)


floats = np.float32
WEIGHT = np.zeros((2, 2, 3, 3), floats)
ON_DATA = {
    "Expand": data_case("Expand", ints(2**20, 2**20, 4, 4)),
    "Expand negative": data_case("Expand", ints(-3, 1, 1, 1)),
    "Tile": data_case("Tile", ints(1, 1, 2**40, 2**40)),
    "Tile short": data_case("Tile", ints(2)),
    "Resize to sizes": data_case("Resize", None, None, ints(1, 2, 2**40, 4)),
    "Resize to no size": data_case("Resize", None, None, ints(1, 2, 0, 4)),
    "Resize by infinity": data_case("Resize", None, np.array([1, 1, np.inf, 1], floats)),
    "Resize by NaN": data_case("Resize", None, np.array([1, 1, np.nan, 1], floats)),
    "Resize by much": data_case("Resize", None, np.array([1, 1, 1e30, 1], floats), mode="linear"),
    "Resize by nothing": data_case("Resize", None, None),
    "Resize in a mode": data_case("Resize", None, np.array([1, 1, 2, 2], floats), mode="best"),
    "Resize cropped": data_case("Resize", None, np.array([1, 1, 2, 2], floats),
                                coordinate_transformation_mode="tf_crop_and_resize"),
    "Resize with aliases": data_case("Resize", None, np.array([1, 1, 1e-30, 1], floats), mode="cubic", antialias=1,
                                     opset=18),
    "Upsample": data_case("Upsample", np.array([1, 1, 1e15, 1], floats), opset=9),
    "Pad": data_case("Pad", ints(0, 0, 0, HUGE, 0, 0, 0, 0)),
    "Pad negative": data_case("Pad", ints(0, 0, 0, -HUGE, 0, 0, 0, 0)),
    "Pad short": data_case("Pad", ints(1, 2, 3)),
    "Pad wrapped": data_case("Pad", ints(0, 0, 0, 2**40, 0, 0, 0, 0), mode="wrap", opset=19),
    "Conv padded": data_case("Conv", WEIGHT, pads=[HUGE] * 4),
    "Conv strided": data_case("Conv", WEIGHT, strides=[0, 1]),
    "Conv strided far": data_case("Conv", WEIGHT, strides=[-HUGE, 1]),
    "Conv dilated": data_case("Conv", WEIGHT, dilations=[HUGE, 1]),
    "Conv in groups": data_case("Conv", WEIGHT, group=0),
    "Conv in negative groups": data_case("Conv", WEIGHT, group=-2),
    "Conv of a kernel": data_case("Conv", WEIGHT, kernel_shape=[HUGE, HUGE]),
    "ConvTranspose": data_case("ConvTranspose", WEIGHT, output_shape=[2**40, 2**40]),
    "ConvTranspose strided": data_case("ConvTranspose", WEIGHT, strides=[2**40, 2**40]),
    "ConvTranspose added": data_case("ConvTranspose", WEIGHT, output_padding=[2**40, 0]),
    "ConvTranspose in groups": data_case("ConvTranspose", WEIGHT, group=0),
    "MaxPool": data_case("MaxPool", kernel_shape=[2**40, 2]),
    "MaxPool padded": data_case("MaxPool", kernel_shape=[2, 2], pads=[2**40] * 4),
    "MaxPool of nothing": data_case("MaxPool"),
    "MaxPool dilated": data_case("MaxPool", kernel_shape=[2**40, 2], dilations=[2, 2]),
    "MaxPool dilated far": data_case("MaxPool", kernel_shape=[2, 2], dilations=[2**40, 2]),
    "MaxPool dilated in padding": data_case("MaxPool", kernel_shape=[2, 2], dilations=[2, 2], pads=[2**40] * 4),
    "AveragePool dilated": data_case("AveragePool", kernel_shape=[1, 2], dilations=[1, 2], pads=[0, 9, 0, 9], opset=19),
    "LpPool": data_case("LpPool", kernel_shape=[2, 2], p=0),
    "Reshape": data_case("Reshape", ints(2**40, -1)),
    "Reshape twice": data_case("Reshape", ints(-1, -1)),
    "Reshape overflowing": data_case("Reshape", ints(2**32, 2**32, 2)),
    "Transpose": data_case("Transpose", perm=[0, 0, 1, 2]),
    "Unsqueeze": data_case("Unsqueeze", ints(HUGE)),
    "Squeeze": data_case("Squeeze", ints(1)),
    "Slice": data_case("Slice", ints(0), ints(2), ints(1), ints(0)),
    "Slice uneven": data_case("Slice", ints(0, 1), ints(2), ints(1)),
    "Split": data_case("Split", ints(HUGE)),
    "Gather": data_case("Gather", ints(-(2**63)), axis=1),
    "Gather of text": data_case("Gather", np.array([0.5], floats), axis=1),
    "Concat": data_case("Concat", np.zeros((1, 9), floats), axis=1),
    "OneHot": data_case("OneHot", np.float32(2**40), np.zeros(2, floats)),
    "OneHot of a half": data_case("OneHot", np.float32(2.5), np.zeros(2, floats)),
    "OneHot of no number": data_case("OneHot", np.float32(np.nan), np.zeros(2, floats)),
    "CumSum": data_case("CumSum", np.int64(1), shape=(1, 2**20)),
    "EyeLike": data_case("EyeLike", shape=(2**15, 2**15)),
    "LRN": data_case("LRN", size=3, shape=(1, 2**20, 1)),
    "LRN of no size": data_case("LRN", size=-(2**40)),
    "Trilu": data_case("Trilu", ints(1), shape=(2**15, 2**15)),
    "Einsum": data_case("Einsum", equation="..."[:2]),
    "Einsum of many": data_case("Einsum", equation="abcde->a"),
    "Einsum to much": data_case("Einsum", equation="abcd->abcdabcd"),
    "Einsum to nothing": data_case("Einsum", equation="abcd->z"),
    "Gemm": data_case("Gemm", np.zeros((4, 4), floats)),
    "MatMul": data_case("MatMul", np.zeros((5, 4), floats)),
    "MatMul of a number": data_case("MatMul", np.float32(1)),
    "BatchNormalization": data_case("BatchNormalization", *[np.zeros(3, floats)] * 4),
    "LayerNormalization": data_case("LayerNormalization", np.zeros(9, floats)),
    "InstanceNormalization": data_case("InstanceNormalization", np.zeros(9, floats), np.zeros(9, floats)),
    "GroupNormalization": data_case("GroupNormalization", *[np.zeros(2, floats)] * 2, num_groups=0, opset=21),
    "DepthToSpace": data_case("DepthToSpace", blocksize=-1),
    "SpaceToDepth": data_case("SpaceToDepth", blocksize=HUGE),
    "ReduceSum": data_case("ReduceSum", ints(HUGE)),
    "ReduceMean": data_case("ReduceMean", axes=[HUGE]),
    "Softmax": data_case("Softmax", axis=HUGE),
    "Flatten": data_case("Flatten", axis=HUGE),
    "ArgMax": data_case("ArgMax", axis=-HUGE),
    "Clip": data_case("Clip", np.zeros(2, floats)),
    "Cast": data_case("Cast", to=2**31 - 1),
    "Shape in a word": data_case("Softmax", axis="last"),
    "Celu": data_case("Celu", alpha=float("nan")),
    "HardSigmoid": data_case("HardSigmoid", alpha=[1.0]),
    "Dropout": data_case("Dropout", np.zeros(3, floats)),
}  # fmt: skip


@pytest.mark.parametrize("case", ON_DATA)
def test_attributes_that_fit_nothing(case: str) -> None:
    with bounded(300), pytest.raises((GraphError, UnsupportedOperatorError)) as caught:
        from_onnx(ON_DATA[case])
    assert "y" in str(caught.value) and "\n" not in str(caught.value)


# Fuzz


def small_models() -> dict[str, onnx.ModelProto]:
    """Networks of a few nodes that use most converters."""
    convolutional = make_model(
        [
            node("Conv", "x w b", "c", pads=[1, 1, 0, 1], strides=[2, 1], auto_pad="NOTSET"),
            node("BatchNormalization", "c g g m v", "n"),
            node("Relu", "n", "r"),
            node("MaxPool", "r", "p", kernel_shape=[2, 2], ceil_mode=1, dilations=[2, 1]),
            node("Resize", "p _ scales", "z", mode="linear"),
            node("AveragePool", "z", "a", kernel_shape=[2, 2], count_include_pad=1, pads=[0, 0, 1, 1]),
            node("Flatten", "a", "f"),
            node("Gemm", "f fc fb", "y", alpha=0.5, transB=1),
        ],
        {"x": ("N", 3, 6, 6)},
        constants={
            "w": RNG.standard_normal((2, 3, 3, 3)).astype(floats), "b": np.ones(2, floats), "g": np.ones(2, floats),
            "m": np.zeros(2, floats), "v": np.ones(2, floats), "scales": np.array([1, 1, 2, 2], floats),
            "fc": RNG.standard_normal((3, 40)).astype(floats), "fb": np.ones(3, floats),
        },
    )  # fmt: skip
    attention = make_model(
        [
            node("Shape", "x", "s"),
            node("Gather", "s zero", "n", axis=0),
            node("Unsqueeze", "n zeros", "u"),
            node("Concat", "u tail", "t", axis=0),
            node("LayerNormalization", "x gamma beta", "l"),
            node("MatMul", "l q", "a"),
            node("Reshape", "a t", "h"),
            node("Transpose", "h", "ht", perm=[0, 2, 1, 3]),
            node("Einsum", "ht ht", "scores", equation="bhqd,bhkd->bhqk"),
            node("Where", "mask scores low", "masked"),
            node("Softmax", "masked", "p", axis=-1),
            node("MatMul", "p ht", "o"),
            node("Slice", "o starts ends axes steps", "sl"),
            node("ReduceMean", "sl", "y", axes=[2], keepdims=0),
        ],
        {"x": ("N", 4, 6)},
        constants={
            "zero": np.int64(0), "zeros": ints(0), "tail": ints(4, 2, 3), "gamma": np.ones(6, floats),
            "beta": np.zeros(6, floats), "q": RNG.standard_normal((6, 6)).astype(floats), "low": floats(-9),
            "mask": np.tril(np.ones((4, 4), bool)), "starts": ints(0), "ends": ints(4), "axes": ints(2),
            "steps": ints(2),
        },
    )  # fmt: skip
    pieces = make_model(
        [
            node("Split", "x", "p q", axis=1),
            node("Pad", "p pads", "d", mode="reflect"),
            node("Clip", "d lo hi", "c"),
            node("ConvTranspose", "q k", "e", strides=[2], output_padding=[1]),
            node("ReduceLogSumExp", "e", "r", axes=[2]),
            node("Greater", "r lo", "g"),
            node("And", "g g", "h"),
            node("CumSum", "c one", "i"),
            node("Mul", "i r", "y"),
        ],
        {"x": (1, 2, 5)},
        constants={
            "pads": ints(0, 0, 1, 0, 0, 1), "lo": floats(0), "hi": floats(6), "one": np.int64(2),
            "k": RNG.standard_normal((1, 1, 3)).astype(floats),
        },
    )  # fmt: skip
    return {"convolutional": convolutional, "attention": attention, "pieces": pieces}


MODELS = small_models()
CONTENTS = [model.SerializeToString() for model in MODELS.values()]


@pytest.mark.parametrize("name", MODELS)
def test_the_models_of_the_fuzz_are_read(name: str) -> None:
    assert from_onnx(MODELS[name]).outputs[0].name == "y"


def read_bytes(content: bytes) -> None:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except (DecodeError, ValueError):
        return
    outcome(lambda: from_onnx(model))


@given(st.data())
def test_mutated_bytes(data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(CONTENTS)))
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(content) - 1))
        kind = data.draw(st.sampled_from(["set", "cut", "put"]))
        if kind == "set":
            content[place] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del content[place : place + data.draw(st.integers(1, 9))]
        else:
            content[place:place] = data.draw(st.binary(max_size=9))
    with bounded(500):
        read_bytes(bytes(content))


@given(st.binary(max_size=200))
def test_random_bytes(content: bytes) -> None:
    read_bytes(content)
    read_bytes(CONTENTS[0][:2] + content)


NUMBERS = st.one_of(
    st.sampled_from([0, 1, -1, 2, 3, 7, 2**20, 2**31 - 1, 2**40, HUGE, -(2**63)]), st.integers(-(2**63), 2**63 - 1)
)
TEXTS = st.one_of(st.sampled_from(["", "x", "y", "w", "Relu", "Add", "Conv", "Reshape", "Loop"]), st.text(max_size=5))
FLOATS = st.one_of(st.sampled_from([0.0, -1.0, 1e-45, 1e38, float("inf"), float("nan")]), st.floats(width=32))


def fields(message: Any) -> Iterator[tuple[Any, Any]]:
    """Every field that is set of a message and of those inside it."""
    stack = [message]
    while stack:
        item = stack.pop()
        for descriptor, value in item.ListFields():
            yield item, descriptor
            if descriptor.message_type is not None:
                stack += value if descriptor.is_repeated else [value]


VALUES: Mapping[int, st.SearchStrategy[Any]] = {1: FLOATS, 2: FLOATS, 3: NUMBERS, 9: TEXTS, 12: st.binary(max_size=9)}
"""What is put into a field, by protobuf's number of its type."""


def mutate(model: onnx.ModelProto, data: st.DataObject) -> None:
    """Changes a field of the model, drops it, or an item of it, or doubles it."""
    found = [*fields(model)]
    if not found:
        return
    item, descriptor = data.draw(st.sampled_from(found))
    change = data.draw(st.sampled_from(["set", "set", "set", "clear", "double"]))
    if change == "clear":
        item.ClearField(descriptor.name)
        return
    strategy = VALUES.get(descriptor.type, st.integers(-(2**31), 2**31 - 1))
    if not descriptor.is_repeated:
        if change == "set" and descriptor.message_type is None:
            try:
                setattr(item, descriptor.name, data.draw(strategy))
            except ValueError:
                item.ClearField(descriptor.name)
        return
    values = getattr(item, descriptor.name)
    place = data.draw(st.integers(0, len(values) - 1))
    if change == "double" or descriptor.message_type is not None:
        if descriptor.message_type is not None:
            values.add().CopyFrom(values[place])
        else:
            values.append(values[place])
        return
    try:
        values[place] = data.draw(strategy)
    except ValueError:
        del values[place]


@given(st.data())
def test_mutated_fields(data: st.DataObject) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(data.draw(st.sampled_from([*MODELS.values()])))
    for _ in range(data.draw(st.integers(1, 4))):
        mutate(model, data)
    with bounded(500):
        outcome(lambda: from_onnx(model))


@given(st.data())
def test_mutated_constants(data: st.DataObject) -> None:
    """Numbers of shapes, pads, scales and their like that nobody means."""
    model = onnx.ModelProto()
    model.CopyFrom(data.draw(st.sampled_from([*MODELS.values()])))
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor).copy()
        if array.size and array.size < 8 and array.dtype.kind in "if" and data.draw(st.booleans()):
            numbers = NUMBERS if array.dtype.kind == "i" else FLOATS
            array.reshape(-1)[data.draw(st.integers(0, array.size - 1))] = data.draw(numbers)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    with bounded(500):
        outcome(lambda: from_onnx(model))


def test_every_node_with_every_input_left_out() -> None:
    for model in MODELS.values():
        for place, item in enumerate(model.graph.node):
            for index, kind in itertools.product(range(len(item.input)), ("missing", "data")):
                changed = onnx.ModelProto()
                changed.CopyFrom(model)
                changed.graph.node[place].input[index] = "" if kind == "missing" else "x"
                outcome(_reader(changed))


def _reader(model: onnx.ModelProto) -> Callable[[], object]:
    return lambda: from_onnx(model)
