"""The exported MXNet checkpoint: operators and attributes that MXNet 1.9.1 has, exact values, names, files."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corners import graph_of, operators_of
from exported import facts
from mxnet_exported import exported, run, saved_by_mxnet
from typer.testing import CliRunner

import mrt
from mrt.cli import app
from mrt.errors import ModelFileError
from mrt.export.mxnet import to_mxnet
from mrt.export.mxnet.params import params_to_bytes
from mrt.frontend.mxnet.params import read_params
from mrt.model import QuantizedModel, assemble
from mrt.quantization.expand import expand_graph
from mrt.symbol import GraphBuilder, TensorType, find_operator
from mrt.symbol.operators.activation import Relu
from mrt.symbol.quantized_tensor import TensorQuantization
from tests.matrix import extreme_feeds
from tests.matrix_cases import CASES
from tests.quantization.networks import observe

DOCUMENT = Path(__file__).parents[2] / "docs" / "export.md"

_WINDOW = {"stride", "dilate", "pad", "num_group", "workspace", "no_bias", "cudnn_tune", "cudnn_off", "layout"}
_REDUCTION: tuple[set[str], set[str]] = (set(), {"axis", "keepdims", "exclude"})
_PLAIN: tuple[set[str], set[str]] = (set(), set())
_PRODUCT: tuple[set[str], set[str]] = (set(), {"transpose_a", "transpose_b", "forward_stype"})
ATTRIBUTES: dict[str, tuple[set[str], set[str]]] = {
    **dict.fromkeys(("relu", "abs", "negative", "square", "floor", "elemwise_add", "elemwise_sub"), _PLAIN),
    **dict.fromkeys(("elemwise_mul", "_maximum", "_minimum", "broadcast_add", "broadcast_sub"), _PLAIN),
    **dict.fromkeys(("broadcast_mul", "broadcast_div", "broadcast_maximum", "broadcast_minimum", "Flatten"), _PLAIN),
    **dict.fromkeys(("_plus_scalar", "_minus_scalar", "_rminus_scalar", "_mul_scalar"), ({"scalar"}, {"is_int"})),
    **dict.fromkeys(("_maximum_scalar", "_minimum_scalar"), ({"scalar"}, {"is_int"})),
    **dict.fromkeys(("sum", "max", "min"), _REDUCTION),
    **dict.fromkeys(("argmax", "argmin"), (set(), {"axis", "keepdims"})),
    **dict.fromkeys(("dot", "batch_dot"), _PRODUCT),
    "add_n": ({"num_args"}, set()),
    "Concat": ({"num_args"}, {"dim"}),
    "Convolution": ({"kernel", "num_filter"}, _WINDOW),
    "Deconvolution": ({"kernel", "num_filter"}, _WINDOW | {"adj", "target_shape"}),
    "FullyConnected": ({"num_hidden"}, {"no_bias", "flatten"}),
    "Pad": ({"mode", "pad_width"}, {"constant_value"}),
    "Pooling": (
        set(),
        {"kernel", "pool_type", "global_pool", "cudnn_off", "pooling_convention", "stride", "pad", "p_value", "layout"}
        | {"count_include_pad"},
    ),
    "Reshape": (set(), {"shape", "reverse", "target_shape", "keep_highest"}),
    "SwapAxis": (set(), {"dim1", "dim2"}),
    "UpSampling": ({"scale", "sample_type", "num_args"}, {"num_filter", "multi_input_mode", "workspace"}),
    **dict.fromkeys(("depth_to_space", "space_to_depth"), ({"block_size"}, set())),
    "expand_dims": ({"axis"}, set()),
    "repeat": ({"repeats"}, {"axis"}),
    "slice": ({"begin", "end"}, {"step"}),
    "slice_axis": ({"axis", "begin", "end"}, set()),
    "slice_like": (set(), {"axes"}),
    "squeeze": (set(), {"axis"}),
    "take": (set(), {"axis", "mode"}),
    "tile": ({"reps"}, set()),
    "transpose": (set(), {"axes"}),
}
"""What MXNet 1.9.1 declares of operators: attributes without a default, and the others."""


def check(written: tuple[str, bytes]) -> set[str]:
    """Form, attributes and parameters of a checkpoint; gives its operators."""
    content, parameters = json.loads(written[0]), read_params(written[1], "params")
    nodes: list[dict[str, Any]] = content["nodes"]
    variables = [place for place, node in enumerate(nodes) if node["op"] == "null"]
    assert content["arg_nodes"] == variables and content["node_row_ptr"] == list(range(len(nodes) + 1))
    assert content["attrs"]["mxnet_version"] == ["int", 10901]
    assert all(len(entry) == 2 and entry[0] in ("int", "str") for entry in content["attrs"].values())
    assert len({node["name"] for node in nodes}) == len(nodes)
    for place, node in enumerate(nodes):
        assert all(source < place and rest == [0, 0] for source, *rest in node["inputs"])
        given = node.get("attrs", {})
        assert all(isinstance(text, str) for text in given.values())
        own = {key for key in given if not key.startswith("__mrt_")}
        if node["op"] == "null":
            assert (node["name"] in parameters) != ("__shape__" in given)
            assert given.get("__dtype__", "1") == "1"
            continue
        required, optional = ATTRIBUTES[node["op"]]
        assert required <= own <= required | optional, node
        if node["op"] in ("Convolution", "Deconvolution"):
            assert given["cudnn_off"] == "True"
            assert node["op"] == "Convolution" or given["kernel"].count(",") <= 2
        if node["op"] == "Pad":
            widths = [int(number) for number in re.findall(r"\d+", given["pad_width"])]
            assert len(widths) in (8, 10) and not any(widths[:4])
        if node["op"] == "Pooling":
            assert given.get("pad", "").count(",") <= given.get("kernel", "").count(",")
    assert {array.dtype.name for array in parameters.values()} <= {"float64"}
    assert all(array.ndim for array in parameters.values())
    return {node["op"] for node in nodes} - {"null"}


def test_every_operator_is_as_mxnet_declares_it() -> None:
    """And every value is whole, but between a product or quotient and its floor."""
    listed = re.search(r"^MXNet operators that occur: (.*?)\.$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert listed is not None
    graph, range_of_x, _ = operators_of("int8")
    seen = check(exported(graph, facts(graph, {"x": range_of_x})))
    seen |= check(exported(graph_of("slice_like", TensorType((4, 5), "int8"), np.ones((2, 3), np.int8))))
    for case in CASES:
        ranges = observe(case.graph, [case.draw(1)])
        integer = expand_graph(case.graph, ranges, case.config("affine", "affine"))
        model = assemble(integer, None, {})
        written = exported(model.graph, model.inputs)
        seen |= check(written)
        graph = mrt.from_mxnet(*written)
        for feeds in extreme_feeds(integer)[:2]:
            given = {s.name: feeds[s.name].astype(np.float64) for s in graph.inputs}
            for symbol, value in graph.walk(given):
                readers = {reader.op for reader in graph.consumers[symbol]}
                if not readers & {"floor", "_plus_scalar", "broadcast_mul"}:
                    assert (value == np.trunc(value)).all() and np.abs(value).max(initial=0) <= 2**33, symbol
    assert seen == set(re.split(r",\s+", listed[1]))


def test_declarations_are_those_of_real_files(data_folder: Path) -> None:
    """The table that checks the exporter, held against files that MXNet wrote."""
    seen = set()
    for path in sorted((data_folder / "mxnet" / "ops").glob("*/*-symbol.json")):
        content = json.loads(path.read_text())
        for node in content["nodes"]:
            if content.get("attrs", {}).get("mxnet_version") == ["int", 10901] and node["op"] in ATTRIBUTES:
                required, optional = ATTRIBUTES[node["op"]]
                given = {key for key in node.get("attrs", {}) if not key.startswith("__")}
                assert required <= given <= required | optional, (path, node)
                seen.add(node["op"])
    assert len(seen) > 30


def test_form_of_a_symbol_file() -> None:
    """The nodes of a small graph, one by one."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2, 3), "int8"))
    weight = builder.parameter("w", np.array([[1, -2, 3]], np.int8))
    y = builder.apply(find_operator("FullyConnected")(num_hidden=1, no_bias=True), [x, weight], "y")
    shifted = builder.apply(find_operator("right_shift")(), [y, builder.parameter("s", np.array(3, np.int8))], "z")
    text, parameters = exported(builder.graph([shifted]))
    nodes = json.loads(text)["nodes"]
    attributes = [
        {key: value for key, value in node.get("attrs", {}).items() if not key.startswith("__mrt_")} for node in nodes
    ]
    found = [(node["op"], node["name"], own, node["inputs"]) for node, own in zip(nodes, attributes, strict=True)]
    assert found == [
        ("null", "x", {"__shape__": "(2, 3)", "__dtype__": "1"}, []),
        ("null", "w", {}, []),
        ("FullyConnected", "y", {"num_hidden": "1", "no_bias": "True"}, [[0, 0, 0], [1, 0, 0]]),
        ("_mul_scalar", "z_mul_scalar", {"scalar": "0.125"}, [[2, 0, 0]]),
        ("_plus_scalar", "z_plus_scalar", {"scalar": "0.5"}, [[3, 0, 0]]),
        ("floor", "z", {}, [[4, 0, 0]]),
    ]
    assert json.loads(text)["heads"] == [[5, 0, 0]]
    (array,) = read_params(parameters, "params").values()
    assert array.dtype == np.float64 and array.tolist() == [[1, -2, 3]]


def test_bytes_of_a_parameter_file() -> None:
    """Field by field, as MXNet 1.9.1 writes them: version, storage, shape, context, dtype, values; then names."""
    array = struct.pack("<Iii2qiii2d", 0xF993FAC9, 0, 2, 1, 2, 1, 0, 1, 0.5, -3.0)
    one, name = struct.pack("<Q", 1), b"arg:conv.w"
    expected = struct.pack("<QQ", 0x112, 0) + one + array + one + struct.pack("<Q", len(name)) + name
    assert params_to_bytes({"conv.w": np.array([[0.5, -3.0]])}) == expected


def test_floats_are_kept_unless_asked_otherwise() -> None:
    weight = np.array([[2**24 + 1, 1]], np.int32)
    graph = graph_of("FullyConnected", TensorType((1, 2), "int8"), weight, num_hidden=1, no_bias=True)
    written = exported(graph, facts(graph, {"x0": (0, 1)}))
    x = np.array([[1.0, 0.0]])
    narrow, wide = mrt.from_mxnet(*written, keep_float64=False), mrt.from_mxnet(*written)
    assert narrow.inputs[0].dtype == "float32" and wide.inputs[0].dtype == "float64"
    assert [read.evaluate({"x0": x})[0].item() for read in (narrow, wide)] == [2**24, 2**24 + 1]


def test_outputs_that_are_inputs_or_parameters_or_stand_twice() -> None:
    builder = GraphBuilder()
    x, weight = builder.input("x", TensorType((2, 3), "int8")), builder.parameter("w", np.array([5, -5], np.int8))
    y = builder.apply(Relu(), [x], "y")
    same = builder.apply(find_operator("Cast")(dtype="int32"), [y], "same")
    graph = builder.graph([x, y, weight, y, same])
    written = exported(graph)
    check(written)
    value = np.array([[-128, 0, 127], [1, -1, 5]], np.int8)
    (found,) = run(written, [{"x": value}])
    expected = [value, np.maximum(value, 0), np.array([5, -5]), np.maximum(value, 0), np.maximum(value, 0)]
    assert all((a == b).all() for a, b in zip(found, expected, strict=True))


def test_scalars_are_vectors_of_one() -> None:
    builder = GraphBuilder()
    x, three = builder.input("x", TensorType((), "int8")), builder.parameter("three", np.array(3, np.int8))
    y = builder.apply(find_operator("broadcast_mul")(), [x, three], "y")
    table = builder.parameter("table", np.arange(500, dtype=np.int32) * 10)
    found = builder.apply(find_operator("take")(), [table, y], "found")
    graph = builder.graph([y, found, builder.apply(find_operator("expand_dims")(axis=0), [found], "row")])
    written = exported(graph)
    check(written)
    (values,) = run(written, [{"x": np.array(7, np.int8)}])
    assert [(value.shape, value.tolist()) for value in values] == [((1,), [21]), ((1,), [210]), ((1,), [210])]


def test_an_input_that_nothing_reads_is_left_out() -> None:
    builder = GraphBuilder()
    builder.input("unread", TensorType((4,), "int16"))
    graph = builder.graph([builder.apply(Relu(), [builder.input("x", TensorType((2,), "int32"))], "y")])
    names = [node["name"] for node in json.loads(exported(graph)[0])["nodes"]]
    assert names == ["x", "y"]


def test_names_that_made_up_ones_would_take() -> None:
    builder = GraphBuilder()
    x = builder.input("y_floor", TensorType((4,), "int16"))
    one = builder.parameter("y_mul_scalar", np.array(1, np.int8))
    shifted = builder.apply(find_operator("right_shift")(), [x, one], "y")
    graph = builder.graph([builder.apply(find_operator("abs")(), [shifted], "y_plus_scalar")])
    written = exported(graph, facts(graph, {"y_floor": (-9, 9)}))
    check(written)
    ((found,),) = run(written, [{"y_floor": np.array([-9, -1, 3, 9], np.int16)}])
    assert found.tolist() == [4, 0, 2, 5]


def test_chains_of_thousands() -> None:
    builder = GraphBuilder()
    symbol = builder.input("x", TensorType((2,), "int32"))
    for _ in range(3000):
        symbol = builder.apply(find_operator("_rminus_scalar")(scalar=3), [symbol])
    graph = builder.graph([symbol])
    written = exported(graph, facts(graph, {"x": (-5, 5)}))
    ((found,),) = run(written, [{"x": np.array([-5, 5], np.int32)}])
    assert found.tolist() == [-5, 5] and len(json.loads(written[0])["nodes"]) == 3001


def test_attributes_suffice_to_run_the_checkpoint_on_real_values(model: QuantizedModel, tmp_path: Path) -> None:
    parameters, path = model.to_mxnet(tmp_path / "net")
    assert (parameters.name, path.name) == ("net-0000.params", "net-symbol.json")
    told = {key: text for key, (_, text) in json.loads(path.read_text())["attrs"].items()}
    assert told["mrt.digest"] == model.digest and told["mrt.format_version"] == "1"
    (given,), (taken,) = json.loads(told["mrt.inputs"]), json.loads(told["mrt.outputs"])
    x = np.random.default_rng(1).standard_normal(model.inputs[0].shape).astype(np.float32)
    steps = np.clip(np.rint(x / np.float32(given["scale"])) + given["zero_point"], given["lo"], given["hi"])
    graph = mrt.load_model(path)
    (found,) = graph.evaluate({given["name"]: steps.astype(np.float64)})
    (expected,) = model.dequantize_outputs(model.graph.evaluate(model.quantize_inputs(x)))
    real = np.asarray(taken["scale"]) * (found - taken["zero_point"])
    assert (real.astype(np.float32) == expected).all() and taken["name"] == graph.outputs[0].name


def test_scales_outlive_a_checkpoint_that_mxnet_loads_and_saves(model: QuantizedModel, tmp_path: Path) -> None:
    parameters, path = model.to_mxnet(tmp_path / "net")
    content = json.loads(path.read_text())
    told = {key: text for key, (_, text) in content["attrs"].items() if key != "mxnet_version"}
    saved = saved_by_mxnet(path.read_text())
    assert told["mrt.digest"] == model.digest and "mrt.inputs" not in saved
    kept = {node["name"]: node["attrs"] for node in json.loads(saved)["nodes"] if "__mrt_quantization__" in str(node)}
    for entry in (*json.loads(told["mrt.inputs"]), *json.loads(told["mrt.outputs"])):
        assert json.loads(kept[entry["name"]]["__mrt_quantization__"]) == entry
        assert kept[entry["name"]].get("__mrt_digest__", model.digest) == model.digest
    assert sum("__mrt_digest__" in attributes for attributes in kept.values()) == 1
    # The integers stay exact too: the nodes say that MRT exported the file.
    before, after = mrt.from_mxnet(path, parameters), mrt.from_mxnet(saved, parameters)
    assert after.inputs[0].dtype == "float64"
    x = {model.inputs[0].name: model.quantize_inputs(np.ones(model.inputs[0].shape))[model.inputs[0].name] * 1.0}
    assert (before.evaluate(x)[0] == after.evaluate(x)[0]).all()


def test_a_node_that_stands_for_several_tensors_has_a_list_of_them() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((2,), "int8"))
    graph = builder.graph([builder.apply(Relu(), [x], "y")] * 2)
    outputs = [TensorQuantization("y", (2,), "int8", scale, 0, 0, 127) for scale in (0.5, 0.25)]
    text, _ = to_mxnet(graph, facts(graph), outputs, "digest")
    attributes = json.loads(text)["nodes"][1]["attrs"]
    assert [entry["scale"] for entry in json.loads(attributes["__mrt_quantization__"])] == [0.5, 0.25]


def test_both_files_or_none(model: QuantizedModel, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="missing"):
        model.to_mxnet(tmp_path / "missing" / "net")
    (tmp_path / "net-symbol.json").mkdir()
    with pytest.raises(ModelFileError, match=r"net-symbol\.json"):
        model.to_mxnet(tmp_path / "net")
    assert [entry.name for entry in tmp_path.iterdir()] == ["net-symbol.json"]


def test_command(model: QuantizedModel, tmp_path: Path) -> None:
    model.save(tmp_path / "saved")
    for arguments in ([], ["--batch", "2", "--output", str(tmp_path / "two")]):
        result = CliRunner().invoke(app, ["export", str(tmp_path / "saved"), "--format", "mxnet", *arguments])
        assert result.exit_code == 0 and model.digest in result.stdout, result.output
    model.to_mxnet(tmp_path / "again")
    for suffix in ("-symbol.json", "-0000.params"):
        assert (tmp_path / f"again{suffix}").read_bytes() == (tmp_path / "saved" / f"model{suffix}").read_bytes()
    assert '"__shape__": "(2, 2, 5, 5)"' in (tmp_path / "two-symbol.json").read_text()
    assert mrt.verify(tmp_path / "saved").digest == model.digest
