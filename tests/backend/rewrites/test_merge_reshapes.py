"""Reshapes behind each other: one, none, or as they were; and the index of an element by another shape."""

from __future__ import annotations

import math

import numpy as np
import pytest
from compiled import op
from hypothesis import given
from hypothesis import strategies as st
from layers import Layers
from tvm import sym, tirx

from mrt.backend.explain import explain
from mrt.backend.rewrites.merge_reshapes import MergeReshapes
from mrt.backend.tir.expressions import regrouped
from mrt.symbol import Graph, GraphBuilder, TensorType

FLATTEN, SQUEEZE = op("Flatten"), op("squeeze")


def chain(shape: tuple[int, ...], *operators: object, last: str = "relu") -> Graph:
    """Operators behind each other; `last` too, unless it is an empty name."""
    builder = GraphBuilder()
    found = builder.input("x", TensorType(shape, "int8"))
    for operator in operators:
        found = builder.apply(operator, [found])
    return builder.graph([builder.apply(op(last), [found], "y") if last else found])


@pytest.mark.parametrize(
    ("shape", "operators", "left"),
    [
        ((1, 7, 12), [op("transpose", axes=(1, 0, 2)), op("Reshape", shape=(7, 3, 4))], ["Reshape"]),
        ((1, 7, 12), [op("expand_dims", axis=0), op("transpose", axes=(2, 0, 1, 3)), SQUEEZE], ["Reshape"]),
        ((2, 12, 1, 1), [SQUEEZE, op("expand_dims", axis=1), FLATTEN], ["Flatten"]),
        ((2, 12), [op("Reshape", shape=(2, 3, 4)), op("expand_dims", axis=0), op("Reshape", shape=(2, 12))], []),
        ((2, 12), [op("Reshape", shape=(4, 6))], ["Reshape"]),
        ((1, 7, 12), [op("transpose", axes=(1, 0, 2))], ["transpose"]),
        (
            (1, 7, 12),
            [op("transpose", axes=(0, 2, 1)), op("Reshape", shape=(12, 7)), op("expand_dims", axis=0)],
            ["transpose"],
        ),
    ],
)
def test_chains_become_one_or_none(shape: tuple[int, ...], operators: list[object], left: list[str]) -> None:
    before = chain(shape, *operators)
    after = MergeReshapes().run(before).graph
    assert [symbol.op for symbol in after.operators] == [*left, "relu"]
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.int8)
    np.testing.assert_array_equal(after.evaluate({"x": x})[0], before.evaluate({"x": x})[0])


def test_an_output_keeps_its_name() -> None:
    before = chain((2, 12), op("Reshape", shape=(4, 6)), op("Reshape", shape=(2, 12)), last="")
    after = MergeReshapes().run(before).graph
    assert [symbol.name for symbol in after.outputs] == [symbol.name for symbol in before.outputs]
    assert len(after.operators) == 1


def test_rows_of_heads_are_not_padded_as_channels_are() -> None:
    """Tokens of heads, flattened: were one channel padded to a vector, most products would be by 0."""
    layers = Layers()
    heads = layers.requantized(layers.input(layers.integers((12, 7, 5), "int16", -200, 200)))
    tokens = layers.hidden("transpose", layers.hidden("expand_dims", heads, axis=0), axes=(2, 0, 1, 3))
    rows = layers.hidden("Flatten", tokens)
    weight = layers.parameter_of((24, 12 * 5), "int8", -127, 127)
    layers.finish(layers.hidden("FullyConnected", rows, weight, num_hidden=24, no_bias=True))
    layers.check()
    calls = explain(layers.graph(), []).calls
    assert ("FullyConnected", "relu") in [call.operators for call in calls]
    assert [call.operators for call in calls if "Reshape" in call.operators or "Flatten" in call.operators]


@given(st.lists(st.integers(1, 4), max_size=5), st.lists(st.integers(1, 4), max_size=5), st.data())
def test_an_index_by_another_shape(first: list[int], second: list[int], data: st.DataObject) -> None:
    """Of all axes of both, in one order and in another."""
    shape = (*first, *second)
    source = tuple(data.draw(st.permutations(shape)))
    if data.draw(st.booleans()):
        source = (math.prod(source[:2]), *source[2:])
    flat = data.draw(st.integers(0, math.prod(shape) - 1))
    at = [int(i) for i in np.unravel_index(flat, shape)] if shape else []
    found = [
        int(sym.Analyzer().simplify(each)) for each in regrouped([tirx.IntImm("int32", i) for i in at], shape, source)
    ]
    assert found == ([int(i) for i in np.unravel_index(flat, source)] if source else [])


def test_nothing_is_divided_where_axes_are_only_joined() -> None:
    i, j, k = (tirx.Var(name, "int32") for name in "ijk")
    first, second = regrouped([i, j, k], (7, 12, 64), (7, 768))
    assert first.same_as(i) and "//" not in str(second) and "%" not in str(second)
