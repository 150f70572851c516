"""A graph for many samples gives what it gives for each alone, or is refused with a reason."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.errors import GraphError
from mrt.symbol import Graph, GraphBuilder, Operator, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.arrangement import SliceLike
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.linear import BatchDot, FullyConnected
from mrt.symbol.operators.normalization import Softmax
from mrt.symbol.operators.reduce import Sum
from mrt.symbol.operators.selection import ElemwiseMaximum
from mrt.symbol.operators.transform import Concat, Flatten, Reshape, SliceAxis, Transpose
from mrt.symbol.rebatch import Rebatch


def _network() -> Graph:
    builder, random = GraphBuilder(), np.random.default_rng(0)
    a, b = builder.input("a", TensorType((1, 2, 4, 4))), builder.input("b", TensorType((1, 3)))
    weight = builder.parameter("w", random.normal(size=(3, 2, 3, 3)).astype(np.float32))
    y = builder.apply(Convolution(kernel=(3, 3), num_filter=3, no_bias=True), [a, weight], "conv")
    y = builder.apply(BroadcastAdd(), [y, builder.parameter("bias", np.ones((1, 3, 1, 1), np.float32))])
    y = builder.apply(Reshape(shape=(0, -1)), [builder.apply(Relu(), [y])])
    y = builder.apply(Concat(dim=1), [builder.apply(Flatten(), [y]), b])
    weight = builder.parameter("w", random.normal(size=(4, 15)).astype(np.float32))
    y = builder.apply(FullyConnected(num_hidden=4, no_bias=True), [y, weight], "fc")
    return builder.graph([builder.apply(Softmax(), [y]), a, weight])


def test_samples_stay_apart() -> None:
    graph, random = _network(), np.random.default_rng(1)
    feeds = {s.name: random.normal(size=(5, *s.shape[1:])).astype(np.float32) for s in graph.inputs}
    found = Rebatch(5)(graph).evaluate(feeds)
    for i in range(5):
        alone = graph.evaluate({name: value[i : i + 1] for name, value in feeds.items()})
        np.testing.assert_allclose(found[0][i : i + 1], alone[0], rtol=1e-6)
        np.testing.assert_array_equal(found[1][i : i + 1], alone[1])
    np.testing.assert_array_equal(found[2], graph.parameters[graph.outputs[2].name])


def test_there_and_back_and_names() -> None:
    graph = _network()
    there = Rebatch(7)(graph)
    assert [s.name for s in there.symbols] == [s.name for s in graph.symbols]
    assert [s.type for s in Rebatch(1)(there).symbols] == [s.type for s in graph.symbols]
    assert Rebatch(1)(graph) is graph


@pytest.mark.parametrize(
    ("operator", "shape"),
    [
        (Reshape(shape=(1, 12)), (1, 3, 4)),
        (Reshape(shape=(-1, 4)), (1, 3, 4)),
        (Reshape(shape=(-1,)), (1, 12)),
        (Transpose(axes=(1, 0, 2)), (1, 1, 4)),
        (Softmax(axis=0), (1, 4)),
        (Sum(axis=(0,), keepdims=True), (1, 4)),
        (SliceAxis(axis=0, begin=0, end=1), (1, 4)),
        (Concat(dim=0), (1, 4)),
    ],
    ids=lambda v: str(v),
)
def test_baked_batch_is_refused_by_name(operator: Operator, shape: tuple[int, ...]) -> None:
    builder = GraphBuilder()
    graph = builder.graph([builder.apply(operator, [builder.input("x", TensorType(shape))], "culprit")])
    with pytest.raises(GraphError, match="culprit"):
        Rebatch(4)(graph)


def test_a_parameter_that_differs_from_sample_to_sample_is_refused() -> None:
    builder = GraphBuilder()
    x, p = builder.input("x", TensorType((2, 3))), builder.parameter("p", np.arange(6, dtype=np.float32).reshape(2, 3))
    for operator in (BroadcastAdd(), ElemwiseAdd(), Concat(dim=1)):
        graph = builder.graph([builder.apply(operator, [x, p], "culprit")])
        for batch in (1, 4):
            with pytest.raises(GraphError, match="culprit"):
                Rebatch(batch)(graph)


@pytest.mark.parametrize("old", [1, 2])
@pytest.mark.parametrize(
    ("operator", "constant", "first"),
    [
        (Concat(dim=1), (1, 4), True),
        (Concat(dim=-1), (3, 2), False),
        (ElemwiseAdd(), (3, 4), False),
        (ElemwiseMaximum(), (3, 4), True),
        (BatchDot(), (2, 3), True),
        (BatchDot(transpose_b=True), (5, 4), False),
        (SliceLike(), (2, 3), False),
        (BroadcastAdd(), (3, 4), False),
    ],
    ids=lambda v: str(v),
)
def test_a_constant_that_is_the_same_for_every_sample_follows_the_batch(
    operator: Operator, constant: tuple[int, ...], first: bool, old: int
) -> None:
    builder, random = GraphBuilder(), np.random.default_rng(2)
    x = builder.input("x", TensorType((old, 3, 4)))
    value = np.repeat(random.normal(size=(1, *constant)).astype(np.float32), old, axis=0)
    p = builder.parameter("p", value)
    operands = [p, x] if first else [x, p]
    y = builder.apply(operator, operands, "y")
    graph = builder.graph([y, builder.apply(operator, operands, "again"), p])
    there = Rebatch(6)(graph)
    assert there.outputs[0].inputs == there.outputs[1].inputs  # the constant is repeated once
    feeds = random.normal(size=(6, 3, 4)).astype(np.float32)
    found = there.evaluate({"x": feeds})
    for i in range(0, 6, old):
        for got, wanted in zip(found[:2], graph.evaluate({"x": feeds[i : i + old]})[:2], strict=True):
            np.testing.assert_array_equal(got[i : i + old], wanted)
    np.testing.assert_array_equal(found[2], value)
    back = Rebatch(old)(there)
    assert [s.type for s in back.outputs] == [s.type for s in graph.outputs]
    np.testing.assert_array_equal(back.evaluate({"x": feeds[:old]})[0], found[0][:old])


def test_a_constant_that_is_computed_follows_the_batch() -> None:
    builder = GraphBuilder()
    x, p = builder.input("x", TensorType((1, 3))), builder.parameter("p", np.array([[-1, 2]], np.float32))
    graph = builder.graph([builder.apply(Concat(dim=1), [builder.apply(Relu(), [p]), x], "y")])
    found = Rebatch(2)(graph).evaluate({"x": np.arange(6, dtype=np.float32).reshape(2, 3)})[0]
    np.testing.assert_array_equal(found, [[0, 2, 0, 1, 2], [0, 2, 3, 4, 5]])


def test_inputs_must_agree() -> None:
    builder = GraphBuilder()
    a, b = builder.input("a", TensorType((1, 3))), builder.input("b", TensorType((3,)))
    with pytest.raises(GraphError, match="same batch"):
        Rebatch(2)(builder.graph([builder.apply(BroadcastAdd(), [a, b])]))


@pytest.mark.parametrize("batch", [0, -1, True, 1.5, 2.0, "2", None])
def test_a_batch_is_a_whole_number_of_samples(batch: object) -> None:
    with pytest.raises(GraphError, match=f"batch is {batch!r}; a whole number, 1 or more, is needed"):
        Rebatch(batch)(_network())
