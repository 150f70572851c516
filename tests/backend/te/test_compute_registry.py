"""What the backend knows of an operator hangs on its record, and is said once."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from mrt.backend.operators.int16 import AddInt16
from mrt.backend.te.registry import Kind, compute, find_compute, has_compute, kind_of, view_of
from mrt.errors import CompilationError, GraphError
from mrt.symbol import Operator, Symbol, TensorType, apply, variable
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.dot import Dot
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.linear import BatchDot

X = variable("x", TensorType((2, 2), "int8"))


@dataclass(frozen=True)
class Strange(Operator):
    """An operator without a compute."""

    op = "test_strange"

    def infer(self, x: TensorType) -> TensorType:
        return x


@dataclass(frozen=True)
class StrangeRelu(Relu):
    """An operator that is a relu, under a name of its own."""

    op = "test_strange_relu"


def test_a_second_registration_is_refused() -> None:
    with pytest.raises(GraphError, match=r"Relu \(relu\) has two entries of the kind compute; one is needed"):
        compute(Relu)(lambda symbol, data: data)


def test_a_name_is_no_record() -> None:
    with pytest.raises(GraphError, match="compute of 'relu': a record is needed"):
        compute("relu")(lambda symbol, data: data)


def test_a_record_has_the_compute_of_the_nearest_of_its_bases() -> None:
    def function(record: Operator, count: int) -> object:
        return find_compute(apply(record, [X] * count, "y"))

    assert function(StrangeRelu(), 1) is function(Relu(), 1)
    assert kind_of(apply(StrangeRelu(), [X], "y")) is Kind.ELEMENTWISE
    assert function(Dot(), 2) is find_compute(Symbol(BatchDot(), "y", (X, X), X.type, "y"))
    assert has_compute(AddInt16) and has_compute(ElemwiseAdd)


def test_what_lacks_a_compute_is_named() -> None:
    symbol = apply(Strange(), [X], "culprit")
    assert not has_compute(Strange) and kind_of(symbol) is Kind.OTHER
    with pytest.raises(CompilationError, match=r"culprit \(test_strange\): there is no compute"):
        find_compute(symbol)(symbol, None)


def test_what_is_no_view_is_named() -> None:
    with pytest.raises(GraphError, match=r"y \(relu\) is no view"):
        view_of(apply(Relu(), [X], "y"), None)
