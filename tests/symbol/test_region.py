"""Elementwise regions: the expression's text, its meaning and its bounds."""

from __future__ import annotations

import numpy as np
import pytest
from applied import infer, run
from hypothesis import given, settings
from hypothesis import strategies as st

from mrt.errors import GraphError
from mrt.symbol import GraphBuilder, Interval, Operator, TensorType
from mrt.symbol.mxnet_json import graph_from_json, graph_to_json
from mrt.symbol.operator import registered_operators
from mrt.symbol.operators.activation import Clip, LeakyReLU, Relu, Tanh
from mrt.symbol.operators.broadcast import BroadcastDiv
from mrt.symbol.operators.elementwise import ElemwiseAdd, ElemwiseMul, ElemwiseSub
from mrt.symbol.operators.functions import Exp, Square
from mrt.symbol.operators.region import (
    MAX_OPERATORS,
    ElementwiseRegion,
    Expression,
    parse_expression,
)
from mrt.symbol.operators.scalar import MulScalar, PlusScalar, RDivScalar

GELU = (
    "elemwise_mul(_mul_scalar(x, scalar=0.5), _plus_scalar(tanh(_mul_scalar(elemwise_add(x, _mul_scalar("
    "elemwise_mul(x, square(x)), scalar=0.044715)), scalar=0.7978845608)), scalar=1))"
)

OPERATORS: list[Operator] = [Relu(), Tanh(), Clip(-0.5, 1e-7), PlusScalar(0.1), MulScalar(-3.5), RDivScalar(2.0)]
OPERATORS += [LeakyReLU(act_type="gelu"), LeakyReLU(slope=0.1), Exp(), Square()]


def unary(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.builds(lambda operator, part: Expression(operator, (part,)), st.sampled_from(OPERATORS), inner)


def binary(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    operators = st.sampled_from([ElemwiseAdd(), ElemwiseSub(), ElemwiseMul(), BroadcastDiv()])
    return st.builds(lambda operator, a, b: Expression(operator, (a, b)), operators, inner, inner)


EXPRESSIONS = st.recursive(st.just(Expression()), lambda inner: unary(inner) | binary(inner), max_leaves=12)


@given(EXPRESSIONS)
def test_text_reads_back_as_it_was(expression: Expression) -> None:
    if expression.size <= MAX_OPERATORS:
        assert parse_expression(str(expression)) == expression


@settings(max_examples=60)
@given(EXPRESSIONS, st.floats(-3, 3), st.floats(0, 3))
def test_bounds_are_sound_and_no_nan(expression: Expression, lo: float, width: float) -> None:
    if expression.size > MAX_OPERATORS:
        return
    operator = ElementwiseRegion(str(expression))
    bounds = operator.bounds(Interval.of(lo, lo + width, (1,)))
    value = operator.evaluate(np.linspace(lo, lo + width, 101))
    value = value[np.isfinite(value)]
    margin = 1e-9 * (1 + np.abs(value))
    assert not np.isnan(bounds.min) and not np.isnan(bounds.max)
    assert ((value >= bounds.min - margin) & (value <= bounds.max + margin)).all()
    wide = operator.bounds(Interval.of(-np.inf, np.inf, (1,)))
    assert not np.isnan(wide.min) and not np.isnan(wide.max)


def test_numbers_of_every_size_are_written_in_full() -> None:
    for number in (np.inf, -np.inf, 1e-300, -3e20, 0.1, 1 / 3, 5.0):
        expression = Expression(MulScalar(number), (Expression(),))
        assert parse_expression(str(expression)) == expression


def test_gelu_of_nine_operators() -> None:
    x = np.linspace(-5, 5, 60).astype(np.float32).reshape(3, 4, 5)
    expected = 0.5 * x.astype(float) * (1 + np.tanh(0.7978845608 * (x.astype(float) + 0.044715 * x.astype(float) ** 3)))
    np.testing.assert_allclose(run(ElementwiseRegion(GELU), x), expected, rtol=1e-6, atol=1e-7)
    assert parse_expression(GELU).size == 9


def test_products_of_equal_parts_know_their_sign() -> None:
    bounds = ElementwiseRegion("square(tanh(x))").bounds(Interval.of(-np.inf, np.inf, (2,)))
    assert (bounds.min, bounds.max) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "ends too early"),
        ("y", "'y', which is no elementwise operator"),
        ("x x", "ends before 'x'"),
        ("tanh", r"lacks '\('"),
        ("tanh(x", r"lacks '\)'"),
        ("tanh()", r"'\)', which is no elementwise operator"),
        ("tanh(x, x)", "gives tanh 2 tensors"),
        ("elemwise_mul(x)", "gives elemwise_mul 1 tensors"),
        ("_mul_scalar(x)", r"_mul_scalar needs the attributes \['scalar'\]"),
        ("_mul_scalar(x, scalar=y)", "_mul_scalar.scalar is 'y'; float is needed"),
        ("tanh(x, scalar=1)", "tanh has no attribute scalar"),
        ("softmax(x)", "'softmax', which is no elementwise operator"),
        ("LeakyReLU(x, act_type=prelu)", "gives LeakyReLU 1 tensors"),
        ("__import__('os')", "malformed at character"),
        ("tanh(" * (MAX_OPERATORS + 1), "more than 48 operators"),
    ],
)
def test_malformed_expressions_are_refused(text: str, found: str) -> None:
    with pytest.raises(GraphError, match=found):
        infer(ElementwiseRegion(text), TensorType((2, 3)))


def test_integers_have_no_form() -> None:
    with pytest.raises(GraphError, match="no integer form"):
        infer(ElementwiseRegion("tanh(x)"), TensorType((2, 3), "int8"))


def test_operators_have_the_arity_of_their_record() -> None:
    attributes = {"clip": ", a_min=-1, a_max=2"}
    names = {record.op: record.expression_arity for record in registered_operators()}
    for name, arity in names.items():
        extra = attributes.get(name, ", scalar=2" if name.endswith("_scalar") else "")
        for count in (1, 2):
            text = f"{name}({', '.join(['x'] * count)}{extra})"
            if count == arity:
                assert parse_expression(text).size == 1
            else:
                with pytest.raises(GraphError, match="no elementwise operator|gives"):
                    parse_expression(text)
    assert sum(arity == 1 for arity in names.values()) > 30
    assert sum(arity == 2 for arity in names.values()) == 4


def test_other_names_of_an_operator_are_not_read() -> None:
    with pytest.raises(GraphError, match="'_PlusScalar', which is no elementwise operator"):
        parse_expression("_PlusScalar(x, scalar=2)")


def test_regions_are_saved_as_they_are() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3)))
    graph = builder.graph([builder.apply(ElementwiseRegion(GELU), [x], "y")])
    again = graph_from_json(graph_to_json(graph), {})
    assert again.outputs[0].operator == graph.outputs[0].operator
    assert str(again) == str(graph)


@pytest.mark.parametrize(
    ("text", "inner", "line"),
    [
        ("tanh(x)", "tanh(x)", (1.0, 0.0)),
        ("_plus_scalar(_mul_scalar(tanh(x), scalar=4), scalar=3)", "tanh(x)", (4.0, 3.0)),
        ("_mul_scalar(_plus_scalar(tanh(x), scalar=3), scalar=4)", "tanh(x)", (4.0, 12.0)),
        ("_rminus_scalar(_div_scalar(tanh(x), scalar=8), scalar=1)", "tanh(x)", (-0.125, 1.0)),
        ("tanh(_mul_scalar(x, scalar=2))", "tanh(_mul_scalar(x, scalar=2))", (1.0, 0.0)),
        ("_rdiv_scalar(tanh(x), scalar=2)", "_rdiv_scalar(tanh(x), scalar=2)", (1.0, 0.0)),
        ("_minus_scalar(x, scalar=2)", "x", (1.0, -2.0)),
    ],
)
def test_arithmetic_with_numbers_around_an_expression_is_a_line(
    text: str, inner: str, line: tuple[float, float]
) -> None:
    assert parse_expression(text).as_line() == (parse_expression(inner), *line)
