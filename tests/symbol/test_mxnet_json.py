"""Symbol JSON: what is written reads back the same; what MXNet writes is read; what is malformed is one clear error."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from mrt.errors import GraphError, ModelFileError, MRTError, UnsupportedOperatorError
from mrt.symbol import Graph, GraphBuilder, Interval, TensorType
from mrt.symbol.bounds import analyse_bounds
from mrt.symbol.mxnet_json import graph_from_json, graph_to_json
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.integer import Cast, Dequantize, Quantize, RightShift
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.normalization import Softmax
from mrt.symbol.operators.reduce import Sum
from mrt.symbol.operators.transform import Concat, Slice, Squeeze


def mixed_graph() -> Graph:
    """Every kind of attribute, odd names, an unused input, an output that is an input, one that stands twice."""
    builder = GraphBuilder()
    unused = builder.input("unused 0", TensorType((2, 0), "int16"))
    data = builder.input("data", TensorType((1, 4)))
    scale = builder.parameter("scale", np.array(0.1, np.float32), origin="data")
    weight = builder.parameter('größe "w"\n', np.arange(-4, 8, dtype=np.int8).reshape(3, 4))
    q = builder.apply(Quantize(a_min=-127, a_max=127, dtype="int8"), [data, scale], "q")
    dense = builder.apply(FullyConnected(num_hidden=3, no_bias=True), [q, weight], "dense", origin="fc")
    shifted = builder.apply(RightShift(), [dense, builder.parameter("shift", np.array([2], np.int32))])
    small = builder.apply(Cast(dtype="int8"), [builder.apply(Clip(a_min=-1e30, a_max=float("inf")), [shifted])], "cast")
    both = builder.apply(Concat(dim=-1), [small, small])
    part = builder.apply(Slice(begin=(None, -1), end=(None, None), step=(None, -2)), [both])
    total = builder.apply(AddN(), [part, part, part], "sum")
    real = builder.apply(Dequantize(zero_point=-3), [total, scale])
    soft = builder.apply(Softmax(temperature=0.1), [real])
    point = builder.apply(Squeeze(), [builder.apply(Sum(axis=(1,), keepdims=True), [soft])], "point")
    assert unused.shape == (2, 0)
    return builder.graph([point, soft, data, weight, soft])


def test_what_is_written_reads_back_the_same() -> None:
    graph = mixed_graph()
    text = graph_to_json(graph)
    again = graph_from_json(text, graph.parameters)
    assert str(again) == str(graph)
    assert [s.operator for s in again.symbols] == [s.operator for s in graph.symbols]
    assert [s.origin for s in again.symbols] == [s.origin for s in graph.symbols]
    assert graph_to_json(again) == text
    feeds = {"data": np.array([[0.3, -0.2, 1.0, 0.55]], np.float32), "unused 0": np.zeros((2, 0), np.int16)}
    for mine, theirs in zip(graph.evaluate(feeds), again.evaluate(feeds), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_the_json_is_of_mxnets_form() -> None:
    content = json.loads(graph_to_json(mixed_graph()))
    nodes = content["nodes"]
    assert content["arg_nodes"] == [place for place, node in enumerate(nodes) if node["op"] == "null"]
    assert content["node_row_ptr"] == list(range(len(nodes) + 1))
    assert content["attrs"]["mxnet_version"] == ["int", 10901]
    assert all(isinstance(value, str) for node in nodes for value in node.get("attrs", {}).values())
    assert all(source[0] < place for place, node in enumerate(nodes) for source in node["inputs"])
    by_name = {node["name"]: node for node in nodes}
    assert by_name["data"]["attrs"] == {"__shape__": "(1, 4)", "__dtype__": "0", "__input__": "True"}
    assert by_name["scale"]["attrs"] == {"__shape__": "()", "__dtype__": "0", "__origin__": "data"}
    assert by_name["dense"]["attrs"] == {"num_hidden": "3", "no_bias": "True", "__origin__": "fc"}
    assert by_name["sum"]["attrs"] == {"num_args": "3"}
    assert [len(head) for head in content["heads"]] == [3] * 5


def _chain(key: str, head: list[int], **operator: Any) -> dict[str, Any]:
    """x -> one operator, attributes under `key`."""
    attributes = operator.pop("attributes", {})
    node = {"op": "relu", "name": "y", "inputs": [[0, 0]], key: attributes, **operator}
    return {"nodes": [{"op": "null", "name": "x", "inputs": []}, node], "arg_nodes": [0], "heads": [head]}


X = {"x": TensorType((2, 3))}


def _read(content: dict[str, Any], types: dict[str, TensorType] | None = None) -> Graph:
    return graph_from_json(json.dumps(content), {}, X if types is None else types)


@pytest.mark.parametrize("key", ["attrs", "attr", "param"])
@pytest.mark.parametrize("head", [[1, 0], [1, 0, 0]])
def test_attributes_under_every_key(key: str, head: list[int]) -> None:
    graph = _read(_chain(key, head, op="clip", attributes={"a_min": "-1", "a_max": "1e+2"}))
    assert graph.outputs[0].operator == Clip(a_min=-1.0, a_max=100.0)


def test_param_stands_beside_the_users_attributes() -> None:
    content = _chain("param", [1, 0], op="_PlusScalar", attributes={"scalar": "2"}, attr={"lr_mult": "0.1"})
    assert _read(content).outputs[0].op == "_plus_scalar"


@pytest.mark.parametrize("kind", ["relu", "sigmoid", "tanh"])
def test_activation_reads_as_its_kind(kind: str) -> None:
    assert _read(_chain("attrs", [1, 0, 0], op="Activation", attributes={"act_type": kind})).outputs[0].op == kind


def test_full_reductions_and_squeezes_of_mxnet_have_one_axis() -> None:
    content = _chain("attrs", [1, 0, 0], op="squeeze")
    graph = _read(content, {"x": TensorType((1, 1))})
    assert graph.outputs[0].name == "y" and graph.outputs[0].shape == (1,)
    assert graph.evaluate({"x": np.array([[7.0]])})[0].tolist() == [7.0]


def test_types_of_inputs() -> None:
    content = _chain("attrs", [1, 0, 0])
    with pytest.raises(ModelFileError, match="x is no parameter, and the symbol file holds no shape for it"):
        _read(content, {})
    content["nodes"][0]["attrs"] = {"__shape__": "(0, 3)", "__dtype__": "0"}
    with pytest.raises(ModelFileError, match="holds no shape"):
        _read(content, {})
    content["nodes"][0]["attrs"] = {"__shape__": "(4, 3)", "__dtype__": "5"}
    assert _read(content, {}).inputs[0].type == TensorType((4, 3), "int8")
    assert _read(content).inputs[0].type == X["x"]


def test_operators_that_share_a_name_get_numbers() -> None:
    content = _chain("attrs", [2, 0, 0])
    content["nodes"].append({"op": "relu", "name": "y", "inputs": [[1, 0, 0]]})
    assert [symbol.name for symbol in _read(content).symbols] == ["x", "y", "y_1"]


def test_every_uncovered_operator_is_listed_with_count_and_names() -> None:
    content = _chain("attrs", [6, 0, 0], op="erfinv", name="a")
    for place, (op, name) in enumerate([("erfinv", "b"), ("hypot", "c"), ("erfinv", "d"), ("erfinv", "e")], start=1):
        content["nodes"].append({"op": op, "name": name, "inputs": [[place, 0, 0]]})
    content["nodes"].append(
        {"op": "Activation", "name": "f", "attrs": {"act_type": "log_sigmoid"}, "inputs": [[5, 1, 0]]},
    )
    with pytest.raises(UnsupportedOperatorError) as error:
        _read(content)
    assert "Activation act_type=log_sigmoid (1: f); erfinv (4: a, b, d, …); hypot (1: c)" in str(error.value)


def test_second_outputs_are_not_covered() -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"y \(relu\): output 1 is used"):
        _read(_chain("attrs", [1, 1, 0]))


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        ({"op": "clip", "attributes": {"a_min": "0"}}, r"y \(clip\): clip needs the attributes \['a_max'\]"),
        ({"op": "clip", "attributes": {"a_min": "zero", "a_max": "1"}}, r"clip.a_min is 'zero'; float is needed"),
        ({"op": "relu", "attributes": {"slope": "1"}}, r"y \(relu\): relu has no attribute slope"),
        ({"op": "FullyConnected", "attributes": {"num_hidden": "3"}}, r"y \(FullyConnected\): .*inputs are given"),
        ({"op": "transpose", "attributes": {"axes": "(0, 2)"}}, r"y \(transpose\): axis 2 is outside"),
    ],
)
def test_operators_that_do_not_fit_are_named(operator: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        _read(_chain("attrs", [1, 0, 0], **operator))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": None}, "a list nodes is needed"),
        ({"heads": 1}, "a list heads is needed"),
        ({"heads": [[7, 0, 0]]}, r"heads of the symbol file name \[7, 0, 0\]"),
        ({"heads": [[-1, 0, 0]]}, r"name \[-1, 0, 0\]"),
        ({"heads": [[1]]}, r"name \[1\]"),
        ({"heads": [[True, 0]]}, r"name \[True, 0\]"),
        ({"nodes": [1]}, r"nodes\[0\] of the symbol file is 1"),
        ({"nodes": [{"op": "null"}]}, "name None"),
        ({"nodes": [{"op": "null", "name": "x", "inputs": 3}]}, "inputs 3"),
        ({"nodes": [{"op": "null", "name": "x", "attrs": {"a": 1}}]}, "attrs {'a': 1}"),
        ({"nodes": [{"op": "relu", "name": "x", "inputs": [[0, 0, 0]]}]}, "inputs of x"),
        ({"nodes": [{"op": "null", "name": "x"}] * 2}, "two nodes called x"),
        (
            {"nodes": [{"op": "null", "name": "x"}, {"op": "relu", "name": "x", "inputs": [[0, 0]]}]},
            "two nodes called x",
        ),
        ({"nodes": [{"op": "null", "name": "x"}, {"op": "null", "name": "y", "inputs": [[0, 0]]}]}, "has inputs"),
        ({"attrs": {"format_version": ["int", 99]}}, "format_version .*99.*update MRT"),
    ],
)
def test_malformed_files_are_one_clear_error(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        _read(_chain("attrs", [1, 0, 0]) | change)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, '{"nodes": [], "heads": []'])
def test_what_is_no_json_object_is_named(text: str) -> None:
    with pytest.raises(ModelFileError, match="the symbol file"):
        graph_from_json(text, {})


def test_a_parameter_of_another_type_than_the_file_says_is_an_error() -> None:
    graph = mixed_graph()
    changed = {**graph.parameters, "shift": np.array([2, 2], np.int32)}
    with pytest.raises(ModelFileError, match=r"parameter shift is int32\[2\]; the symbol file says int32\[1\]"):
        graph_from_json(graph_to_json(graph), changed)


def test_damaged_text_ends_in_an_error_of_ours_or_a_graph() -> None:
    graph = mixed_graph()
    text, rng = graph_to_json(graph), random.Random(0)
    for _ in range(400):
        at = rng.randrange(len(text))
        damaged = text[:at] + rng.choice(["", "0", '"', "-", "null", "[", "9"]) + text[at + rng.randrange(4) :]
        try:
            graph_from_json(damaged, graph.parameters)
        except MRTError as error:
            assert str(error)


def test_chain_of_ten_thousand_operators() -> None:
    builder = GraphBuilder()
    symbol = builder.input("x", TensorType((1, 2), "int8"))
    for index in range(10_000):
        symbol = builder.apply(Relu() if index % 2 else Clip(a_min=-7, a_max=7), [symbol], f"s{index}")
    graph = builder.graph([symbol])
    again = graph_from_json(graph_to_json(graph), {})
    assert str(again) == str(graph)
    assert again.evaluate({"x": np.array([[-9, 9]], np.int8)})[0].tolist() == [[0, 7]]
    assert str(analyse_bounds(again, {"x": Interval.of(-128, 127, (1, 2))})["s9999"]) == "[0, 7]"
