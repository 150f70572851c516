"""The whole of preparation: outputs stay, the normal form is reached."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.errors import DataError, GraphError
from mrt.preparation import PreparationConfig, prepare
from mrt.symbol import Graph, GraphBuilder, Operator, Symbol, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.arrangement import Tile
from mrt.symbol.operators.broadcast import BroadcastMul, BroadcastSub
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.normalization import BatchNorm, Dropout, Softmax
from mrt.symbol.operators.pooling import Pooling
from mrt.symbol.operators.reduce import Sum
from mrt.symbol.operators.scalar import DivScalar, MinusScalar, PlusScalar
from mrt.symbol.operators.transform import Flatten, Reshape, Squeeze, Transpose

RANDOM = np.random.default_rng(5)


def _parameter(builder: GraphBuilder, name: str, *shape: int) -> Symbol:
    return builder.parameter(name, RANDOM.normal(size=shape).astype(np.float32))


def _block(builder: GraphBuilder, data: Symbol, name: str) -> Symbol:
    """Convolution, batch normalisation, relu, a residual sum and dropout."""
    inputs = [data, _parameter(builder, "weight", 4, 4, 3, 3), _parameter(builder, "bias", 4)]
    y = builder.apply(Convolution(kernel=(3, 3), num_filter=4, pad=(1, 1)), inputs, name)
    statistics = [_parameter(builder, k, 4) for k in ("gamma", "beta", "mean")]
    variance = builder.parameter("var", np.abs(RANDOM.normal(size=4).astype(np.float32)) + 0.5)
    y = builder.apply(BatchNorm(fix_gamma=False), [y, *statistics, variance], f"{name}_bn")
    y = builder.apply(ElemwiseAdd(), [builder.apply(Relu(), [y]), data])
    return builder.apply(Dropout(), [y])


def _network() -> Graph:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 4, 8, 8)))
    y = builder.apply(DivScalar(scalar=0.5), [builder.apply(MinusScalar(scalar=0.1), [x])])
    y = builder.apply(BroadcastSub(), [_parameter(builder, "mean", 4, 1, 1), y])
    y = _block(builder, _block(builder, y, "one"), "two")
    y = builder.apply(Pooling(pool_type="avg", kernel=(3, 3), stride=(2, 2), pad=(1, 1), count_include_pad=False), [y])
    y = builder.apply(Pooling(pool_type="avg", global_pool=True), [y], "pool")
    inputs = [builder.apply(Flatten(), [y]), _parameter(builder, "weight", 10, 4), _parameter(builder, "bias", 10)]
    y = builder.apply(FullyConnected(num_hidden=10), inputs, "fc")
    y = builder.apply(PlusScalar(scalar=0.25), [y], "shifted")
    return builder.graph([builder.apply(Softmax(), [y], "prob"), x])


def test_normal_form(assert_same_outputs) -> None:
    graph = _network()
    prepared = prepare(graph)
    assert prepared.graph.count_operators() == {
        "broadcast_add": 4,
        "broadcast_mul": 3,
        "Convolution": 2,
        "Pad": 2,
        "relu": 2,
        "elemwise_add": 2,
        "Pooling": 2,
        "Flatten": 1,
        "FullyConnected": 1,
    }
    assert [s.name for s in prepared.graph.outputs] == ["shifted", "x"]
    assert all(s.origin == s.name for s in prepared.graph.symbols)
    layers = [s.operator for s in prepared.graph.operators if isinstance(s.operator, (Convolution, FullyConnected))]
    assert all(layer.no_bias and not any(getattr(layer, "pad", ())) for layer in layers)
    before = graph.with_outputs([graph.by_name["shifted"], graph.inputs[0]])
    assert_same_outputs(before, prepared.graph)


def test_prepared_graph_stays_as_it_is() -> None:
    once = prepare(_network()).graph
    assert str(prepare(once).graph) == str(once)


def test_graph_given_is_not_changed() -> None:
    graph = _network()
    before, parameters = str(graph), {name: value.copy() for name, value in graph.parameters.items()}
    prepare(graph)
    assert str(graph) == before
    assert all(np.array_equal(graph.parameters[name], value) for name, value in parameters.items())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_non_finite_parameter_is_named(value: float) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3)))
    weight = builder.parameter("bad_weight", np.array([[1, 2, value]], np.float32))
    graph = builder.graph([builder.apply(FullyConnected(num_hidden=1, no_bias=True), [x, weight])])
    with pytest.raises(DataError, match=r"bad_weight holds .* at \(0, 2\)"):
        prepare(graph)


def test_non_finite_parameter_in_the_tail_is_named() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3)))
    bad = builder.parameter("bad", np.full((1, 3), np.nan, np.float32))
    graph = builder.graph([builder.apply(BroadcastMul(), [builder.apply(Relu(), [x]), bad], "tail")])
    with pytest.raises(DataError, match="bad"):
        prepare(graph, PreparationConfig(split=("tail",)))


def test_input_or_parameter_as_output() -> None:
    builder = GraphBuilder()
    x, p = builder.input("x", TensorType((1, 3))), builder.parameter("p", np.arange(3, dtype=np.float32))
    prepared = prepare(builder.graph([x, p, builder.apply(Dropout(), [x])]))
    value = np.ones((1, 3), np.float32)
    found = prepared.graph.evaluate({"x": value})
    assert (
        np.array_equal(found[0], value) and np.array_equal(found[1], np.arange(3)) and np.array_equal(found[2], value)
    )


@pytest.mark.parametrize(
    "operator",
    [Transpose(), Reshape(shape=(-1,)), Reshape(shape=(2, 2)), Squeeze(), Sum(axis=(0,))],
    ids=lambda v: str(v),
)
@pytest.mark.parametrize("config", [PreparationConfig(), PreparationConfig(split=("culprit",))])
def test_an_output_without_the_batch_is_named(operator: Operator, config: PreparationConfig) -> None:
    builder = GraphBuilder()
    y = builder.apply(Relu(), [builder.input("x", TensorType((1, 4)))], "y")
    graph = builder.graph([y, builder.apply(operator, [y], "culprit")])
    with pytest.raises(GraphError, match="output culprit .* axis 0 must be the batch, which is 1"):
        prepare(graph, config)


def test_a_tensor_without_the_batch_that_crosses_the_cut_is_named() -> None:
    builder = GraphBuilder()
    moved = builder.apply(Transpose(), [builder.input("x", TensorType((1, 4)))], "moved")
    graph = builder.graph([builder.apply(Transpose(), [builder.apply(Relu(), [moved], "y")], "back")])
    prepare(graph)
    with pytest.raises(GraphError, match="output moved .* axis 0 must be the batch"):
        prepare(graph, PreparationConfig(split=("y",)))


def test_a_constant_output_needs_no_batch() -> None:
    builder = GraphBuilder()
    x, p = builder.input("x", TensorType((1, 4))), _parameter(builder, "p", 3)
    prepared = prepare(builder.graph([builder.apply(Relu(), [x]), builder.apply(Relu(), [p]), p])).graph
    assert [output.shape for output in prepared.outputs] == [(1, 4), p.shape, p.shape]


@pytest.mark.exhaustive
def test_a_chain_of_thousands_of_operators() -> None:
    builder = GraphBuilder()
    y = builder.input("x", TensorType((1, 2)))
    for i in range(750):
        y = builder.apply(PlusScalar(scalar=0.5 + i % 3), [builder.apply(Relu(), [y])])
        y = builder.apply(Dropout(), [builder.apply(DivScalar(scalar=2.0), [y])])
    graph = builder.graph([y])
    prepared = prepare(graph)
    assert prepared.graph.count_operators() == {"relu": 750, "broadcast_add": 750, "broadcast_mul": 750}
    value = np.array([[1.0, -1.0]], np.float32)
    np.testing.assert_allclose(prepared.graph.evaluate({"x": value})[0], graph.evaluate({"x": value})[0], rtol=1e-5)


def test_golden_text() -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 1, 4, 4)))
    inputs = [x, builder.parameter("weight", np.ones((2, 1, 3, 3), np.float32))]
    y = builder.apply(Convolution(kernel=(3, 3), num_filter=2, pad=(1, 1), no_bias=True), inputs, "conv")
    values = {"gamma": [1, 1], "beta": [0.5, 1], "mean": [0, 0], "var": [0.75, 3.75]}
    statistics = [builder.parameter(name, np.array(v, np.float32)) for name, v in values.items()]
    y = builder.apply(Relu(), [builder.apply(BatchNorm(eps=0.25), [y, *statistics], "bn")], "act")
    y = builder.apply(Dropout(), [builder.apply(Pooling(pool_type="avg", kernel=(2, 2)), [y], "pool")])
    y = builder.apply(Softmax(axis=1), [y], "prob")
    prepared = prepare(builder.graph([y]))
    lines = str(prepared.graph).splitlines()
    operators = [line.strip() for line in lines if line.strip().startswith("%")]
    assert operators == [
        "%bn_pad : float32[1, 1, 6, 6] = Pad(%x) {pad_width = (0, 0, 0, 0, 1, 1, 1, 1)}",
        "%bn_product : float32[1, 2, 4, 4] = Convolution(%bn_pad, @bn_weight) "
        "{kernel = (3, 3), num_filter = 2, no_bias = True}",
        "%bn : float32[1, 2, 4, 4] = broadcast_add(%bn_product, @bn_bias_1)",
        "%act : float32[1, 2, 4, 4] = relu(%bn)",
        "%pool_sum : float32[1, 2, 3, 3] = Pooling(%act) {kernel = (2, 2), pool_type = 'sum'}",
        "%pool : float32[1, 2, 3, 3] = broadcast_mul(%pool_sum, @pool_factor)",
    ]
    parameters = prepared.graph.parameters
    assert np.array_equal(parameters["bn_weight"][:, 0, 0, 0], [1, 0.5]) and parameters["pool_factor"].item() == 0.25
    assert np.array_equal(parameters["bn_bias_1"].reshape(-1), [0.5, 1])


def test_a_graph_that_makes_far_more_than_it_is_given_is_refused() -> None:
    """Before a tensor of it is made: a network of a few bytes may ask for gigabytes."""
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3, 2, 2)))
    graph = builder.graph([builder.apply(Tile(reps=(1, 1, 4096, 4096)), [x], "vast")])
    with pytest.raises(GraphError, match=r"vast \(tile\): 201326592 elements would be made, 16777216 are allowed"):
        prepare(graph)
