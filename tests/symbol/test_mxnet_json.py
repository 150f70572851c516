"""Symbol JSON: what is written reads back the same; what MXNet writes is read; what is malformed is one clear error."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from mrt.errors import GraphError, ModelFileError, MRTError
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
    zero = builder.parameter("zero", np.array(-3, np.int8))
    weight = builder.parameter('größe "w"\n', np.arange(-4, 8, dtype=np.int8).reshape(3, 4))
    q = builder.apply(Quantize(a_min=-127, a_max=127, dtype="int8"), [data, scale, zero], "q")
    dense = builder.apply(FullyConnected(num_hidden=3, no_bias=True), [q, weight], "dense", origin="fc")
    shifted = builder.apply(RightShift(), [dense, builder.parameter("shift", np.array([2], np.int32))])
    small = builder.apply(Cast(dtype="int8"), [builder.apply(Clip(a_min=-1e30, a_max=float("inf")), [shifted])], "cast")
    both = builder.apply(Concat(dim=-1), [small, small])
    part = builder.apply(Slice(begin=(None, -1), end=(None, None), step=(None, -2)), [both])
    total = builder.apply(AddN(), [part, part, part], "sum")
    real = builder.apply(Dequantize(), [total, scale, zero])
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


def _own(**changes: Any) -> str:
    """x -> relu, as MRT writes it, with entries changed."""
    x = {"op": "null", "name": "x", "attrs": {"__shape__": "(2, 3)", "__dtype__": "0", "__input__": "True"}}
    nodes = [{**x, "inputs": []}, {"op": "relu", "name": "y", "inputs": [[0, 0, 0]]}]
    content = {"nodes": nodes, "arg_nodes": [0], "heads": [[1, 0, 0]], "attrs": {"format_version": ["int", 1]}}
    return json.dumps(content | changes)


def test_files_that_mrt_did_not_write_are_told_apart() -> None:
    assert graph_from_json(_own(), {}).outputs[0].op == "relu"
    with pytest.raises(ModelFileError, match=r"not written by MRT; mrt.from_mxnet reads"):
        graph_from_json(_own(attrs={"mxnet_version": ["int", 10901]}), {})


def test_operators_that_are_not_known_are_named() -> None:
    nodes = [*json.loads(_own())["nodes"][:1], {"op": "erfinv", "name": "y", "inputs": [[0, 0, 0]]}]
    with pytest.raises(GraphError, match=r"y \(erfinv\): operator erfinv is not known"):
        graph_from_json(_own(nodes=nodes), {})


def test_a_variable_is_an_input_or_has_a_value() -> None:
    nodes = json.loads(_own())["nodes"]
    del nodes[0]["attrs"]["__input__"]
    with pytest.raises(ModelFileError, match=r"parameter x is missing; float32\[2, 3\] is needed"):
        graph_from_json(_own(nodes=nodes), {})
    for shape in ("(2, -3)", "(2,", "None"):
        nodes[0]["attrs"]["__shape__"] = shape
        with pytest.raises(ModelFileError, match="__shape__"):
            graph_from_json(_own(nodes=nodes), {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes": None}, "a list nodes is needed"),
        ({"heads": 1}, "a list heads is needed"),
        ({"heads": [[7, 0, 0]]}, r"heads of the symbol file name \[7, 0, 0\]"),
        ({"heads": [[-1, 0, 0]]}, r"name \[-1, 0, 0\]"),
        ({"heads": [[1]]}, r"name \[1\]"),
        ({"heads": [[1, 1, 0]]}, "reads output 1; there is none but 0"),
        ({"heads": [[1, -1, 0]]}, r"name \[1, -1, 0\]"),
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
        graph_from_json(_own(**change), {})


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


def test_a_chain_of_thousands_of_operators() -> None:
    builder = GraphBuilder()
    symbol = builder.input("x", TensorType((1, 2), "int8"))
    for index in range(3_000):
        symbol = builder.apply(Relu() if index % 2 else Clip(a_min=-7, a_max=7), [symbol], f"s{index}")
    graph = builder.graph([symbol])
    again = graph_from_json(graph_to_json(graph), {})
    assert str(again) == str(graph)
    assert again.evaluate({"x": np.array([[-9, 9]], np.int8)})[0].tolist() == [[0, 7]]
    assert str(analyse_bounds(again, {"x": Interval.of(-128, 127, (1, 2))})["s2999"]) == "[0, 7]"
