"""Attributes: brought to their declared types, read from MXNet's texts, wrong ones named."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.errors import GraphError
from mrt.symbol.operator import parse_operator
from mrt.symbol.operators.activation import Clip
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.reduce import Sum
from mrt.symbol.operators.transform import Reshape, Slice, Squeeze


def test_attributes_have_their_declared_types() -> None:
    operator = Convolution(kernel=[np.int64(3)], num_filter=np.int32(4), no_bias=np.bool_(True))  # type: ignore[list-item]
    assert operator == Convolution(kernel=(3,), num_filter=4, no_bias=True)
    assert repr(operator.attributes()) == "{'kernel': (3,), 'num_filter': 4, 'no_bias': True}"
    assert repr(Clip(a_min=-7, a_max=np.float32(0.5)).attributes()) == "{'a_min': -7.0, 'a_max': 0.5}"
    assert Squeeze(axis=1) == Squeeze(axis=(1,))  # type: ignore[arg-type]


def test_attributes_of_a_wrong_type_are_named() -> None:
    with pytest.raises(GraphError, match=r"Reshape.shape is \(1.5,\)"):
        Reshape(shape=(1.5,))  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="Convolution.num_filter is inf; int is needed"):
        Convolution(kernel=(1,), num_filter=float("inf"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "attributes", "operator"),
    [
        ("Pooling", {"kernel": "(3,3)", "global_pool": "1", "cudnn_off": "False"}, Pooling((3, 3), global_pool=True)),
        ("Pooling", {"kernel": "[2, 2]", "pool_type": "sum"}, Pooling((2, 2), "sum")),
        ("sum", {"axis": "1", "keepdims": "True"}, Sum((1,), True)),
        ("sum", {"axis": "()"}, Sum(())),
        ("sum", {"axis": "None"}, Sum()),
        ("slice", {"begin": "(None, 1)", "end": "(2, None)", "step": "()"}, Slice((None, 1), (2, None))),
        ("clip", {"a_min": "-inf", "a_max": "1e+2", "__note__": "x"}, Clip(float("-inf"), 100.0)),
        ("Convolution", {"kernel": "(1, 1)", "num_filter": "4", "layout": "None"}, Convolution((1, 1), 4)),
    ],
)
def test_texts_of_mxnet(name: str, attributes: dict[str, str], operator: object) -> None:
    assert parse_operator(name, attributes) == operator


@pytest.mark.parametrize("text", ["(2, x)", "2.5", "(" * 999, "-" * 99_999 + "1", "9" * 9999, "1e999", "nan", ""])
def test_texts_that_are_no_value_are_named(text: str) -> None:
    with pytest.raises(GraphError, match=r"Reshape.shape is .* is needed"):
        parse_operator("Reshape", {"shape": text})
