"""Slices of one tensor step after step: one function for all of them, and the same integers."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import assert_same_values, op

from mrt.backend import build_module
from mrt.backend.operators.steps_from import StepsFrom
from mrt.backend.rewrites.slices_by_begin import WORTH, SlicesByBegin
from mrt.symbol import Graph, GraphBuilder, Interval, Symbol, TensorType
from mrt.symbol.runner import Runner

MANY = 2 * WORTH
INFO = np.iinfo("int8")


def steps(shape: tuple[int, ...], axis: int, count: int, length: int = 1, reads: str = "relu") -> Graph:
    """Slices behind each other, from the last one back, each of which an operator reads."""
    builder = GraphBuilder()
    data = builder.apply(op("negative"), [builder.input("x", TensorType(shape, "int8"))])
    found: list[Symbol] = []
    for begin in reversed(range(0, count * length, length)):
        cut = builder.apply(op("slice_axis", axis=axis, begin=begin, end=begin + length), [data])
        found.append(builder.apply(op(reads), [cut]))
    return builder.graph(found)


def inputs(graph: Graph) -> dict[str, np.ndarray]:
    (x,) = graph.inputs
    return {x.name: np.random.default_rng(0).integers(INFO.min + 1, INFO.max, x.shape, "int8", endpoint=True)}


@pytest.mark.parametrize(
    ("shape", "axis", "length"),
    [((MANY, 1, 48), 0, 1), ((1, MANY, 40), 1, 1), ((1, 2 * MANY, 40), -2, 2), ((MANY, 16, 3, 5), 0, 1)],
    ids=["time first", "time second", "two steps", "samples"],
)
def test_all_of_them_are_one_function(shape: tuple[int, ...], axis: int, length: int, runner: Runner) -> None:
    graph = steps(shape, axis, MANY, length)
    found = SlicesByBegin()(graph)
    assert {symbol.op for symbol in found.operators} == {"negative", "steps_from", "relu"}
    expected = graph.evaluate(inputs(graph))
    assert_same_values(found, found.evaluate(inputs(graph)), expected)
    assert_same_values(graph, runner.prepare(graph)(inputs(graph)), expected)
    kernels = [each for each in build_module(graph).get_global_vars() if each.name_hint.startswith("region_steps_from")]
    assert len(kernels) == 1


@pytest.mark.parametrize(
    "graph",
    [
        steps((WORTH - 1, 1, 48), 0, WORTH - 1),
        steps((2, MANY, 48), 1, MANY),
        steps((1, 1, MANY), 2, MANY),
        steps((1, MANY, 3, 5), 1, MANY),
        steps((MANY, 1, 48), 0, MANY, reads="Flatten"),
        steps((MANY, 1, 48), 0, MANY, reads="sum"),
    ],
    ids=["few", "of two samples", "features", "channels", "read where they lie", "summed up"],
)
def test_others_stay(graph: Graph) -> None:
    assert SlicesByBegin()(graph) is graph


def test_an_output_stays_and_so_does_what_two_read() -> None:
    graph = steps((MANY, 1, 48), 0, MANY)
    cuts = [symbol for symbol in graph.operators if symbol.op == "slice_axis"]
    second = GraphBuilder(reserved=graph.by_name).apply(op("relu"), [cuts[1]], "second")
    found = SlicesByBegin()(Graph(graph.inputs, (*graph.outputs, cuts[0], second)))
    assert [symbol.name for symbol in found.operators if symbol.op == "slice_axis"] == [cuts[0].name, cuts[1].name]


def test_bounds_are_those_of_the_slice() -> None:
    x = np.arange(24, dtype=np.int32).reshape(6, 4)
    operator, begin = StepsFrom(axis=0, length=2), np.int32([[3]])
    np.testing.assert_array_equal(operator.evaluate(x, begin), x[3:5])
    found = operator.bounds(Interval(x - 1, x + 1, x.shape), Interval.constant(begin))
    np.testing.assert_array_equal((found.lo, found.hi), (x[3:5] - 1, x[3:5] + 1))
    assert operator.infer(TensorType((6, 4), "int8"), TensorType((1, 1), "int32")) == TensorType((2, 4), "int8")
