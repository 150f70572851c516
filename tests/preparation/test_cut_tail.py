"""What is cut off plus what remains is the whole."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.errors import ConfigError
from mrt.preparation import PreparationConfig, Prepared, prepare
from mrt.preparation.cut_tail import cut_tail
from mrt.symbol import Graph, GraphBuilder, Operator, Symbol, TensorType
from mrt.symbol.operators.activation import Relu, Sigmoid, Tanh
from mrt.symbol.operators.elementwise import ElemwiseAdd, ElemwiseMul
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.normalization import Dropout, Identity, LogSoftmax, Softmax
from mrt.symbol.operators.transform import Concat, ExpandDims, Reshape


def _layer(builder: GraphBuilder, data: Symbol, name: str, hidden: int = 4) -> Symbol:
    random = np.random.default_rng(len(name))
    weight = builder.parameter(f"{name}_weight", random.normal(size=(hidden, data.shape[-1])).astype(np.float32))
    return builder.apply(FullyConnected(num_hidden=hidden, no_bias=True), [data, weight], name)


def _check(graph: Graph, prepared: Prepared) -> None:
    """Body and tail joined by name and order give the whole's outputs."""
    random = np.random.default_rng(0)
    feeds = {s.name: random.normal(size=s.shape).astype(np.float32) for s in graph.inputs}
    values, tail = prepared.graph.evaluate(feeds), prepared.postprocess
    if tail is not None:
        assert [s.name for s in tail.inputs] == [s.name for s in prepared.graph.outputs]
        assert [s.type for s in tail.inputs] == [s.type for s in prepared.graph.outputs]
        names = {symbol.name for symbol in tail.inputs}
        values = tail.evaluate({s.name: v for s, v in zip(tail.inputs, values, strict=True) if s.name in names})
    expected = graph.evaluate(feeds)
    assert len(values) == len(expected)
    for a, b in zip(expected, values, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("operator", [Softmax(), LogSoftmax()], ids=lambda operator: operator.op)
def test_trailing_softmax(operator: Operator) -> None:
    builder = GraphBuilder()
    fc = _layer(builder, builder.input("x", TensorType((1, 3))), "fc")
    graph = builder.graph([builder.apply(operator, [fc], "prob")])
    prepared = prepare(graph)
    assert [s.name for s in prepared.graph.outputs] == ["fc"]
    assert prepared.postprocess is not None and prepared.postprocess.count_operators() == {operator.op: 1}
    _check(graph, prepared)


def test_through_reshapes_and_identities_behind() -> None:
    builder = GraphBuilder()
    y = builder.apply(Softmax(), [_layer(builder, builder.input("x", TensorType((1, 3))), "fc")], "prob")
    y = builder.apply(Reshape(shape=(0, 2, 2)), [builder.apply(Dropout(), [y])])
    graph = builder.graph([builder.apply(ExpandDims(axis=1), [y], "end")])
    prepared = prepare(graph)
    assert [s.name for s in prepared.graph.outputs] == ["fc"]
    _check(graph, prepared)


def test_nothing_to_cut() -> None:
    builder = GraphBuilder()
    graph = builder.graph([_layer(builder, builder.input("x", TensorType((1, 3))), "fc")])
    assert prepare(graph).postprocess is None
    softmax = builder.graph([builder.apply(Softmax(), [graph.outputs[0]], "prob")])
    kept = prepare(softmax, PreparationConfig(cut_softmax=False))
    assert kept.postprocess is None and kept.graph.outputs[0].op == "softmax"


def test_softmax_inside_stays_with_a_reason() -> None:
    builder = GraphBuilder()
    prob = builder.apply(Softmax(), [_layer(builder, builder.input("x", TensorType((1, 3))), "fc")], "prob")
    graph = builder.graph([prob, _layer(builder, prob, "more")])
    prepared = prepare(graph)
    assert prepared.postprocess is None
    assert [(r.symbol, "more" in r.reason) for r in prepared.refusals] == [("prob", True)]


def test_two_outputs_of_which_one_is_cut() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3)))
    fc = _layer(builder, x, "fc")
    box = builder.apply(Relu(), [_layer(builder, x, "box")], "positive")
    prob = builder.apply(Softmax(), [fc], "prob")
    graph = builder.graph([box, prob, x, prob, fc])
    prepared = prepare(graph)
    assert [s.name for s in prepared.graph.outputs] == ["positive", "fc", "x"]
    _check(graph, prepared)


def test_split_takes_all_that_follows() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 4)))
    a = _layer(builder, x, "a")
    gate = builder.apply(Sigmoid(), [a], "gate")
    b = _layer(builder, a, "b")
    scaled = builder.apply(ElemwiseMul(), [gate, b], "scaled")
    constant = builder.parameter("anchor", np.ones((1, 4), np.float32))
    graph = builder.graph([builder.apply(ElemwiseAdd(), [scaled, constant], "box"), builder.apply(Tanh(), [b], "t")])
    prepared = prepare(graph, PreparationConfig(split=("gate",)))
    assert {s.name for s in prepared.graph.outputs} == {"a", "b", "t"}
    assert prepared.postprocess is not None
    assert {s.name for s in prepared.postprocess.operators} == {"gate", "scaled", "box"}
    _check(graph, prepared)


def test_split_by_pattern_and_of_a_dropped_symbol() -> None:
    builder = GraphBuilder()
    y = builder.input("x", TensorType((1, 4)))
    for i in range(3):
        y = builder.apply(Identity(), [builder.apply(Relu(), [_layer(builder, y, f"fc{i}")], f"act{i}")], f"copy{i}")
    prepared = prepare(builder.graph([y]), PreparationConfig(split=("fc[12]",)))
    assert [s.name for s in prepared.graph.outputs] == ["act0"]
    _check(builder.graph([y]), prepared)


def test_tensors_that_become_one_cross_once() -> None:
    builder = GraphBuilder()
    fc = _layer(builder, builder.input("x", TensorType((1, 4))), "fc")
    copies = [builder.apply(Identity(), [fc], f"copy{i}") for i in range(2)]
    graph = builder.graph([builder.apply(Concat(dim=1), [*copies, fc], "all")])
    prepared = prepare(graph, PreparationConfig(split=("all",)))
    assert [s.name for s in prepared.graph.outputs] == ["fc"]
    _check(graph, prepared)


def test_tensor_that_becomes_a_parameter_moves_into_the_tail() -> None:
    builder = GraphBuilder()
    fc = _layer(builder, builder.input("x", TensorType((1, 4))), "fc")
    constant = builder.apply(Relu(), [builder.parameter("p", np.ones((1, 4), np.float32))], "constant")
    graph = builder.graph([builder.apply(ElemwiseAdd(), [fc, constant], "sum")])
    prepared = prepare(graph, PreparationConfig(split=("sum",)))
    assert [s.name for s in prepared.graph.outputs] == ["fc"]
    _check(graph, prepared)


def test_clashing_names() -> None:
    builder = GraphBuilder()
    fc = builder.apply(Identity(), [_layer(builder, builder.input("x", TensorType((1, 4))), "fc")], "copy")
    other = builder.parameter("fc_product", np.ones((1, 4), np.float32))
    graph = builder.graph([builder.apply(ElemwiseAdd(), [fc, other], "sum")])
    _check(graph, prepare(graph, PreparationConfig(split=("sum",))))


def test_unknown_name_is_an_error_with_the_nearest() -> None:
    builder = GraphBuilder()
    graph = builder.graph([_layer(builder, builder.input("x", TensorType((1, 4))), "dense1")])
    with pytest.raises(ConfigError, match=r"prepare\.split: 'dens1' matches no symbol.*dense1"):
        cut_tail(graph, ["dens1"])
    with pytest.raises(ConfigError, match="'x' is an input or parameter"):
        cut_tail(graph, ["x"])
