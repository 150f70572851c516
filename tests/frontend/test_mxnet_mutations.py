"""MXNet symbols damaged at random: read, or refused by one MRTError."""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mxnet_files import random, symbol_json
from mxnet_networks import KERNEL, small

from mrt.errors import MRTError
from mrt.frontend import from_mxnet
from mrt.frontend.mxnet.node import covered_operators
from mrt.symbol import Graph
from mrt.symbol.operator import find_operator, is_operator


def test_the_whole_one_is_read() -> None:
    assert [output.shape for output in from_mxnet(small(), KERNEL).outputs] == [(2, 4, 2, 2), (2, 2, 2, 2)]


PIECES = [
    '"',
    "-",
    "[",
    "]",
    "9",
    "e9",
    "0",
    ",",
    ".5",
    "null",
    "x",
    "(",
    "1, ",
    "\\ud800",
    "relu",
    "None",
    "77777777777",
]


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 4), st.sampled_from(PIECES)), min_size=1, max_size=4))
def test_mutated_files_give_a_graph_or_an_error_of_ours(changes: list[tuple[int, int, str]]) -> None:
    text = small()
    for place, removed, piece in changes:
        text = text[:place] + piece + text[place + removed :]
    try:
        assert isinstance(from_mxnet(text if text.lstrip()[:1] in "{[" else "{" + text, KERNEL), Graph)
    except MRTError as error:
        assert str(error)


@given(st.data())
def test_mutated_attributes_give_a_graph_or_an_error_of_ours(data: st.DataObject) -> None:
    content = json.loads(small())
    node = content["nodes"][data.draw(st.integers(0, len(content["nodes"]) - 1))]
    texts = st.sampled_from(["", "()", "-1", "0", "None", "1e400", "nan", "(0, 0)", "(2, 2, 2)", "True", "'", "9" * 30])
    for key in data.draw(st.lists(st.sampled_from([*node["attrs"], "axis", "layout", "shape", "pad"]), min_size=1)):
        node["attrs"][key] = data.draw(texts)
    try:
        from_mxnet(json.dumps(content), KERNEL)
    except MRTError as error:
        assert str(error)


# fmt: off
OTHER_ATTRIBUTES = [
    "act_type", "axis", "center_crop", "depth", "dtype", "h_w", "keepdims", "kernel", "lhs_axes", "mode",
    "multi_output", "nsize", "num_args", "num_outputs", "offset", "on_value", "ord", "pad", "pool_type",
    "preserve_shape", "sample_type", "scalar", "scale", "shape", "size", "squeeze_axis", "stride", "target_shape",
    "value",
]
# fmt: on


@pytest.mark.parametrize("op", sorted(covered_operators()))
def test_any_attributes_of_any_operator_give_a_graph_or_an_error_of_ours(op: str) -> None:
    """Attributes of all kinds of values, on inputs of all ranks; those that are drawn differ by operator."""
    rng = np.random.default_rng([*op.encode()])
    keys = [field.name for field in fields(find_operator(op))] if is_operator(op) else OTHER_ATTRIBUTES
    texts = [
        "",
        "()",
        "-1",
        "0",
        "2",
        "None",
        "1e400",
        "nan",
        "(0, 0)",
        "(2, 2)",
        "True",
        "9" * 30,
        "NHWC",
        "prelu",
        "avg",
    ]
    shapes = [(2,), (2, 3), (1, 2, 3), (2, 2, 3, 3), (1, 2, 2, 2, 2), (1,)]
    for _ in range(20):
        known = {key: str(rng.choice(texts)) for key in keys if rng.random() < 0.7}
        inputs = [[int(place), 0] for place in range(rng.integers(0, 4))]
        text = symbol_json(*(("null", name, []) for name in "abc"), (op, "y", inputs, known))
        arrays = {"c": random(*shapes[rng.integers(len(shapes))])}
        try:
            from_mxnet(text, arrays, {name: shapes[rng.integers(len(shapes))] for name in "ab"})
        except MRTError as error:
            assert str(error)
