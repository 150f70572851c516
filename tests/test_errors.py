"""What holds for every error."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import mrt
from mrt.errors import GraphError, MRTError


def test_an_error_is_one_line() -> None:
    assert str(GraphError("input a\nb is\r\nmissing")) == "input a b is missing"
    assert str(GraphError("input a  b is missing")) == "input a  b is missing"


def test_line_breaks_in_a_file_make_no_second_line() -> None:
    graph = helper.make_graph(
        [helper.make_node("Pad", ["x", "pads"], ["y"], name="pad", mode="a\rb\n")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [helper.make_tensor("pads", TensorProto.INT64, [4], np.ones(4, np.int64).tolist())],
    )
    with pytest.raises(MRTError, match="constant, edge, reflect") as caught:
        mrt.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert len(str(caught.value).splitlines()) == 1
