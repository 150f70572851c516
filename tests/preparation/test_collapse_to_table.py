"""Elementwise regions collapse into one operator; what is seen elsewhere or gains nothing stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mrt.frontend import load_model
from mrt.preparation import prepare
from mrt.preparation.collapse_to_table import CollapseToTable
from mrt.symbol import Graph, GraphBuilder, Operator, Symbol, TensorType
from mrt.symbol.operators.activation import Clip, LeakyReLU, Relu, Sigmoid, Tanh
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastDiv, BroadcastMul, BroadcastSub
from mrt.symbol.operators.elementwise import AddN, ElemwiseAdd, ElemwiseMul, ElemwiseSub
from mrt.symbol.operators.functions import Exp, Square
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.region import MAX_OPERATORS, ElementwiseRegion, parse_expression
from mrt.symbol.operators.scalar import MulScalar, PlusScalar

Check = Callable[[Graph, Graph], None]


class Net:
    """A graph under construction, with short ways to write it."""

    def __init__(self, *shape: int) -> None:
        self.builder = GraphBuilder()
        self.x = self.builder.input("x", TensorType(shape or (1, 4, 6)))

    def __call__(self, operator: Operator, *inputs: Symbol | np.ndarray | float, name: str | None = None) -> Symbol:
        symbols = [
            value if isinstance(value, Symbol) else self.builder.parameter("c", np.asarray(value, np.float32))
            for value in inputs
        ]
        return self.builder.apply(operator, symbols, name)

    def graph(self, *outputs: Symbol) -> Graph:
        return self.builder.graph(outputs)


def collapsed(graph: Graph) -> list[str]:
    """The operators after the pass; regions as their expressions."""
    return [
        s.operator.expression if isinstance(s.operator, ElementwiseRegion) else s.op
        for s in CollapseToTable()(graph).operators
    ]


def one(value: float) -> np.ndarray:
    return np.full((1, 1, 1), value)


def gelu(net: Net, x: Symbol) -> Symbol:
    """As the transformer of the keyword models has it: nine operators."""
    cubed = net(ElemwiseMul(), x, net(ElemwiseMul(), x, x))
    inner = net(ElemwiseAdd(), x, net(BroadcastMul(), cubed, one(0.044715)))
    gate = net(BroadcastAdd(), net(Tanh(), net(BroadcastMul(), inner, one(0.7978845))), one(1.0))
    return net(BroadcastMul(), net(ElemwiseMul(), x, gate), one(0.5), name="gelu")


def test_gelu_of_nine_operators(assert_same_outputs: Check) -> None:
    net = Net(1, 4, 6)
    layer = net(FullyConnected(num_hidden=6, no_bias=True, flatten=False), net.x, np.eye(6))
    biased = net(BroadcastAdd(), layer, np.arange(6.0).reshape(1, 1, 6))
    graph = net.graph(gelu(net, biased))
    result = CollapseToTable()(graph)
    assert list(result.count_operators()) == ["FullyConnected", "broadcast_add", "elementwise_region"]
    region = result.outputs[0]
    assert region.name == "gelu" and region.inputs[0] is result.by_name[biased.name]
    assert parse_expression(region.operator.expression).size == 9
    assert_same_outputs(graph, result)


def test_every_kind_of_member(assert_same_outputs: Check) -> None:
    net = Net()
    x = net.x
    a = net(Exp(), x)
    b = net(BroadcastSub(), one(2.0), a)
    c = net(BroadcastDiv(), one(3.0), net(PlusScalar(1.0), net(Square(), x)))
    d = net(AddN(), a, b, c, x)
    e = net(ElemwiseSub(), d, net(BroadcastDiv(), x, net(PlusScalar(1.0), a)))
    f = net(BroadcastMul(), net(LeakyReLU(slope=0.1), e), net(Clip(-1.0, 1.0), e))
    graph = net.graph(net(BroadcastSub(), f, one(0.5)))
    result = CollapseToTable()(graph)
    assert [s.op for s in result.operators] == ["elementwise_region"]
    assert_same_outputs(graph, result)


def test_a_region_that_another_follows_is_one(assert_same_outputs: Check) -> None:
    net = Net()
    graph = net.graph(net(Sigmoid(), gelu(net, net(MulScalar(0.5), net(Sigmoid(), net.x)))))
    assert len(collapsed(graph)) == 1
    assert_same_outputs(graph, CollapseToTable()(graph))


def test_products_of_a_tensor_with_itself() -> None:
    net = Net()
    y = net(PlusScalar(1.0), net.x)
    assert collapsed(net.graph(net(ElemwiseMul(), y, y))) == ["square(_plus_scalar(x, scalar=1.0))"]


def test_values_seen_outside_end_a_region(assert_same_outputs: Check) -> None:
    net = Net()
    seen = net(Tanh(), net(PlusScalar(1.0), net.x), name="seen")
    last = net(Sigmoid(), net(MulScalar(2.0), seen))
    graph = net.graph(last, seen)
    assert collapsed(graph) == ["tanh(_plus_scalar(x, scalar=1.0))", "sigmoid(_mul_scalar(x, scalar=2.0))"]
    assert_same_outputs(graph, CollapseToTable()(graph))


def test_what_an_inner_output_prevents_is_said() -> None:
    net = Net()
    inner = net(PlusScalar(1.0), net.x, name="inner")
    result = CollapseToTable().run(net.graph(net(Tanh(), inner, name="outer"), inner))
    assert [str(r) for r in result.refusals] == ["outer: inner (_plus_scalar), which it reads, is an output"]
    assert [s.op for s in result.graph.operators] == ["_plus_scalar", "tanh"]


def test_what_an_inner_reader_prevents_is_said() -> None:
    net = Net()
    inner = net(PlusScalar(1.0), net.x, name="inner")
    layer = net(FullyConnected(num_hidden=2, no_bias=True), inner, np.ones((2, 24)))
    result = CollapseToTable().run(net.graph(net(Tanh(), inner, name="outer"), layer))
    assert [str(r) for r in result.refusals] == ["outer: inner (_plus_scalar), which it reads, is read by others too"]


def test_two_sources_are_not_collapsed() -> None:
    net = Net()
    other = net.builder.input("other", net.x.type)
    total = net(ElemwiseMul(), net(Tanh(), net.x), net(Sigmoid(), other))
    assert collapsed(net.graph(total)) == ["tanh", "sigmoid", "elemwise_mul"]


def test_constants_of_several_elements_end_a_region() -> None:
    net = Net()
    scaled = net(BroadcastMul(), net(PlusScalar(1.0), net.x), np.arange(6.0).reshape(1, 1, 6))
    assert collapsed(net.graph(net(MulScalar(2.0), net(Tanh(), scaled)))) == [
        "_plus_scalar",
        "broadcast_mul",
        "_mul_scalar(tanh(x), scalar=2.0)",
    ]


def test_broadcasting_ends_a_region() -> None:
    net = Net(1, 1, 6)
    wide = net(BroadcastAdd(), net(Tanh(), net.x), np.ones((1, 4, 1)))
    assert collapsed(net.graph(net(Sigmoid(), wide))) == ["tanh", "broadcast_add", "sigmoid"]


@pytest.mark.parametrize(
    "operators",
    [
        [Tanh()],
        [PlusScalar(1.0), MulScalar(2.0)],
        [MulScalar(2.0), Relu(), PlusScalar(1.0), Clip(0.0, 1.0)],
        [LeakyReLU(slope=0.1), MulScalar(2.0)],
    ],
    ids=str,
)
def test_what_gains_nothing_stays(operators: list[Operator]) -> None:
    net = Net()
    y = net.x
    for operator in operators:
        y = net(operator, y)
    assert collapsed(net.graph(y)) == [operator.op for operator in operators]


@pytest.mark.parametrize("first", [Relu(), Clip(-1.0, 2.0)], ids=str)
def test_a_range_is_narrowed_before_the_table(first: Operator) -> None:
    net = Net()
    y = net(MulScalar(2.0), net(Tanh(), net(first, net(first, net.x))))
    assert collapsed(net.graph(y)) == [first.op, first.op, "_mul_scalar(tanh(x), scalar=2.0)"]


def test_a_clip_within_stays_within() -> None:
    net = Net()
    gate = net(Clip(0.0, 6.0), net(PlusScalar(3.0), net.x))
    y = net(MulScalar(1 / 6), net(ElemwiseMul(), net.x, gate))
    assert len(collapsed(net.graph(y))) == 1


def test_expressions_keep_to_their_limit(assert_same_outputs: Check) -> None:
    net = Net()
    y = net.x
    for _ in range(100):
        y = net(Tanh(), net(PlusScalar(0.25), y))
    result = CollapseToTable()(net.graph(y))
    sizes = [parse_expression(s.operator.expression).size for s in result.operators]
    assert sum(sizes) == 200 and max(sizes) == MAX_OPERATORS
    assert_same_outputs(net.graph(y), result)


def test_shared_values_do_not_grow_without_limit() -> None:
    net = Net()
    y = net.x
    for _ in range(60):
        y = net(ElemwiseMul(), y, net(PlusScalar(0.5), y))
    sizes = [parse_expression(text).size for text in collapsed(net.graph(y))]
    assert max(sizes) <= MAX_OPERATORS


def test_long_chains() -> None:
    net = Net()
    y = net.x
    for index in range(3_000):
        y = net((PlusScalar(0.5), MulScalar(0.5), Tanh() if index > 1_500 else Relu())[index % 3], y)
    assert len(CollapseToTable()(net.graph(y)).operators) < 3_000


def test_chains_that_read_their_input_again_and_again_end() -> None:
    """Each of these sums is a function of the input by all operators before it; what is too large is told."""
    net = Net()
    y = net.x
    for _ in range(1_500):
        y = net(ElemwiseMul(), net(Tanh(), y), net.x)
    found = CollapseToTable().run(net.graph(y))
    assert any(f"more than {MAX_OPERATORS} operators" in refusal.reason for refusal in found.refusals)


def test_integer_graphs_are_left_alone() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 4), "int32"))
    y = builder.apply(ElemwiseMul(), [x, builder.apply(PlusScalar(1.0), [x])])
    graph = builder.graph([y])
    assert str(CollapseToTable()(graph)) == str(graph)


def test_the_transformers_gelus_collapse(data_folder: Path) -> None:
    graph = load_model(data_folder / "models" / "onnx" / "kwt1_speechcommands12.onnx")
    prepared = prepare(graph).graph
    counts = prepared.count_operators()
    assert counts["elementwise_region"] == 12
    assert not {"tanh", "elemwise_mul"} & set(counts)
    feeds = {s.name: np.random.default_rng(0).standard_normal(s.shape).astype(s.dtype) for s in graph.inputs}
    for before, after in zip(graph.evaluate(feeds), prepared.evaluate(feeds), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)
