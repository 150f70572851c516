"""Batch normalisation and arithmetic per channel vanish into the layer before them."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.preparation.fold_batch_norm import FoldBatchNorm
from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.normalization import BatchNorm
from mrt.symbol.operators.transform import Reshape, Transpose

RANDOM = np.random.default_rng(3)


def _random(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def _batch_norm(builder: GraphBuilder, data: Symbol, channels: int, name: str = "bn", **attributes) -> Symbol:
    values = {"gamma": _random(channels), "beta": _random(channels), "mean": _random(channels)}
    values["var"] = np.abs(_random(channels)) + 0.1
    inputs = [data, *(builder.parameter(f"{name}_{k}", v) for k, v in values.items())]
    return builder.apply(BatchNorm(**attributes), inputs, name)


def _convolution(builder: GraphBuilder, data: Symbol, name: str = "conv", bias: bool = True, groups: int = 1) -> Symbol:
    weight = builder.parameter("w", _random(4, data.shape[1] // groups, 3, 3))
    inputs = [data, weight, builder.parameter("b", _random(4))] if bias else [data, weight]
    return builder.apply(Convolution(kernel=(3, 3), num_filter=4, no_bias=not bias, num_group=groups), inputs, name)


def _normalized(graph: Graph, x: np.ndarray, axis: int, fix_gamma: bool, eps: float) -> np.ndarray:
    """Batch normalisation of x by its formula, in float64."""
    p = {name: value.astype(np.float64) for name, value in graph.parameters.items()}
    shape = tuple(-1 if i == axis else 1 for i in range(x.ndim))
    gamma = np.ones_like(p["bn_gamma"]) if fix_gamma else p["bn_gamma"]
    normal = (x - p["bn_mean"].reshape(shape)) / np.sqrt(p["bn_var"].reshape(shape) + eps)
    return normal * gamma.reshape(shape) + p["bn_beta"].reshape(shape)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("fix_gamma", [False, True])
def test_into_a_convolution(groups: int, bias: bool, fix_gamma: bool, assert_same_outputs) -> None:
    builder = GraphBuilder()
    conv = _convolution(builder, builder.input("x", TensorType((1, 4, 6, 5))), bias=bias, groups=groups)
    graph = builder.graph([_batch_norm(builder, conv, 4, fix_gamma=fix_gamma, eps=0.01)])
    result = FoldBatchNorm()(graph)
    assert [s.op for s in result.operators] == ["Convolution"]
    assert result.outputs[0].name == "bn" and not result.outputs[0].operator.no_bias
    assert_same_outputs(graph, result)
    x = _random(1, 4, 6, 5)
    convolved = graph.with_outputs([conv]).evaluate({"x": x})[0].astype(np.float64)
    expected = _normalized(graph, convolved, 1, fix_gamma, 0.01)
    np.testing.assert_allclose(result.evaluate({"x": x})[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("flatten", [False, True])
def test_into_a_fully_connected_layer(flatten: bool, assert_same_outputs) -> None:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3, 5)))
    weight = builder.parameter("w", _random(4, 15 if flatten else 5))
    layer = builder.apply(FullyConnected(num_hidden=4, no_bias=True, flatten=flatten), [x, weight], "fc")
    graph = builder.graph([_batch_norm(builder, layer, 4, axis=-1, fix_gamma=False)])
    result = FoldBatchNorm()(graph)
    assert [s.op for s in result.operators] == ["FullyConnected"]
    assert_same_outputs(graph, result)


MOVERS = {
    "flattened samples": ((2, 5, 3), (Reshape(shape=(-1, 4)), Reshape(shape=(2, 5, 4)))),
    "channels moved": ((2, 5, 3), (Transpose(axes=(0, 2, 1)), Reshape(shape=(0, 0, 5, 1)))),
}


@pytest.mark.parametrize("case", MOVERS)
def test_behind_what_moves_the_channels_of_a_layer(case: str, assert_same_outputs) -> None:
    """The normalisation is gone, and what moved the layer's output moves it still."""
    shape, (first, second) = MOVERS[case]
    builder = GraphBuilder()
    dense = FullyConnected(num_hidden=4, no_bias=True, flatten=False)
    layer = builder.apply(dense, [builder.input("x", TensorType(shape)), builder.parameter("w", _random(4, 3))], "fc")
    normal = _batch_norm(builder, builder.apply(first, [layer], "moved"), 4, axis=1, eps=0.01)
    moved = builder.apply(second, [normal], "again")
    three = builder.parameter("m", np.full((1,) * moved.type.rank, 3.0, np.float32))
    graph = builder.graph([builder.apply(BroadcastMul(), [moved, three], "y")])
    result = FoldBatchNorm()(graph)
    assert [s.op for s in result.operators] == [dense.op, first.op, second.op]
    assert result.outputs[0].name == "y"
    assert_same_outputs(graph, result)


HEADS = (Reshape(shape=(2, 5, 2, 4)), Transpose(axes=(0, 2, 1, 3)))
SHUFFLE = (Reshape(shape=(2, 5, 2, 4)), Transpose(axes=(0, 1, 3, 2)), Reshape(shape=(2, 5, 8)))


@pytest.mark.parametrize(
    ("movers", "constant", "folds"),
    [
        (HEADS, (1, 1, 1, 1), True),
        (HEADS, (1, 2, 1, 1), True),
        (HEADS, (1, 2, 1, 4), True),
        (HEADS, (1, 1, 5, 1), False),
        (SHUFFLE, (1, 1, 8), True),
        (SHUFFLE, (1, 5, 1), False),
        (SHUFFLE, (2, 1, 1), False),
    ],
)
def test_a_constant_behind_heads_and_shuffled_channels(movers, constant, folds: bool, assert_same_outputs) -> None:
    """It goes to the channels from which the elements came, if none of them would get two factors."""
    builder = GraphBuilder()
    dense = FullyConnected(num_hidden=8, no_bias=True, flatten=False)
    weight = builder.parameter("w", _random(8, 3))
    data = builder.apply(dense, [builder.input("x", TensorType((2, 5, 3))), weight], "fc")
    for mover in movers:
        data = builder.apply(mover, [data])
    factors = builder.parameter("m", np.arange(2, 2 + np.prod(constant), dtype=np.float32).reshape(constant))
    graph = builder.graph([builder.apply(BroadcastMul(), [data, factors], "y")])
    result = FoldBatchNorm()(graph)
    assert ("broadcast_mul" not in {s.op for s in result.operators}) == folds
    assert_same_outputs(graph, result)


def test_a_normalisation_of_shuffled_channels(assert_same_outputs) -> None:
    builder = GraphBuilder()
    data = _convolution(builder, builder.input("x", TensorType((1, 4, 8, 8))))
    for mover in (Reshape(shape=(1, 2, 2, 36)), Transpose(axes=(0, 2, 1, 3)), Reshape(shape=(1, 4, 6, 6))):
        data = builder.apply(mover, [data])
    graph = builder.graph([_batch_norm(builder, data, 4, fix_gamma=False)])
    result = FoldBatchNorm()(graph)
    assert [s.op for s in result.operators] == ["Convolution", "Reshape", "transpose", "Reshape"]
    assert_same_outputs(graph, result)


@pytest.mark.parametrize("is_read", [False, True])
def test_channels_that_are_mixed_or_read_by_others_stay(is_read: bool, assert_same_outputs) -> None:
    builder = GraphBuilder()
    dense = FullyConnected(num_hidden=5, no_bias=True, flatten=False)
    layer = builder.apply(dense, [builder.input("x", TensorType((5, 3))), builder.parameter("w", _random(5, 3))], "fc")
    mover = Reshape(shape=(5, 5)) if is_read else Transpose(axes=(1, 0))
    normal = _batch_norm(builder, builder.apply(mover, [layer]), 5, axis=1)
    graph = builder.graph([normal, layer] if is_read else [normal])
    result = FoldBatchNorm()(graph)
    assert {"broadcast_mul", "broadcast_add"} <= {s.op for s in result.operators}
    assert_same_outputs(graph, result)


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_without_a_layer_it_is_a_multiply_add(axis: int) -> None:
    shape = (2, 3, 4, 5)
    builder = GraphBuilder()
    x = builder.input("x", TensorType(shape))
    graph = builder.graph([_batch_norm(builder, x, shape[axis], axis=axis, fix_gamma=False, eps=1e-3)])
    result = FoldBatchNorm()(graph)
    assert [s.op for s in result.operators] == ["broadcast_mul", "broadcast_add"]
    constant = tuple(n if i == axis % 4 else 1 for i, n in enumerate(shape))
    assert all(s.inputs[1].shape == constant for s in result.operators)
    value = _random(*shape)
    expected = _normalized(graph, value.astype(np.float64), axis % 4, False, 1e-3)
    np.testing.assert_allclose(result.evaluate({"x": value})[0], expected, rtol=1e-5, atol=1e-5)


def test_over_another_axis_than_the_output_channels(assert_same_outputs) -> None:
    builder = GraphBuilder()
    conv = _convolution(builder, builder.input("x", TensorType((1, 4, 6, 6))))
    graph = builder.graph([_batch_norm(builder, conv, 4, axis=2, fix_gamma=False)])
    result = FoldBatchNorm()(graph)
    assert [s.op for s in result.operators] == ["Convolution", "broadcast_mul", "broadcast_add"]
    assert_same_outputs(graph, result)


@pytest.mark.parametrize("as_output", [False, True])
def test_a_layer_that_others_read_stays(as_output: bool, assert_same_outputs) -> None:
    builder = GraphBuilder()
    conv = _convolution(builder, builder.input("x", TensorType((1, 4, 6, 6))))
    graph = builder.graph([_batch_norm(builder, conv, 4), conv if as_output else builder.apply(Relu(), [conv])])
    result = FoldBatchNorm()(graph)
    assert result.count_operators()["broadcast_mul"] == 1 and "conv" in result.by_name
    assert_same_outputs(graph, result)


def test_shared_weight_is_copied(assert_same_outputs) -> None:
    builder = GraphBuilder()
    x, weight = builder.input("x", TensorType((1, 4, 5, 5))), builder.parameter("w", _random(4, 4, 3, 3))
    layers = [builder.apply(Convolution(kernel=(3, 3), num_filter=4, no_bias=True), [x, weight], n) for n in "ab"]
    graph = builder.graph([*(_batch_norm(builder, s, 4, f"bn{i}") for i, s in enumerate(layers)), layers[0]])
    result = FoldBatchNorm()(graph)
    assert {"w", "bn1_weight"} <= set(result.parameters)
    assert_same_outputs(graph, result)


def test_arithmetic_per_channel(assert_same_outputs) -> None:
    builder = GraphBuilder()
    y = _convolution(builder, builder.input("x", TensorType((1, 4, 6, 6))), bias=False)
    y = builder.apply(BroadcastAdd(), [y, builder.parameter("c", _random(1, 4, 1, 1))])
    y = _batch_norm(builder, y, 4, fix_gamma=False)
    y = builder.apply(BroadcastMul(), [y, builder.parameter("c", _random(1, 1, 1, 1))])
    graph = builder.graph([builder.apply(BroadcastAdd(), [y, builder.parameter("c", _random(1, 4, 1, 1))], "end")])
    result = FoldBatchNorm()(graph)
    assert [s.op for s in result.operators] == ["Convolution"] and result.outputs[0].name == "end"
    assert_same_outputs(graph, result)


def test_multiplication_alone_makes_no_bias(assert_same_outputs) -> None:
    builder = GraphBuilder()
    conv = _convolution(builder, builder.input("x", TensorType((1, 4, 6, 6))), bias=False)
    graph = builder.graph([builder.apply(BroadcastMul(), [conv, builder.parameter("c", _random(1, 4, 1, 1))])])
    result = FoldBatchNorm()(graph)
    assert [s.op for s in result.operators] == ["Convolution"] and result.outputs[0].operator.no_bias
    assert_same_outputs(graph, result)


@pytest.mark.parametrize("shape", [(1, 1, 4, 1), (1, 4, 1, 4)])
def test_arithmetic_per_position_stays(shape: tuple[int, ...]) -> None:
    builder = GraphBuilder()
    conv = _convolution(builder, builder.input("x", TensorType((1, 4, 6, 6))))
    graph = builder.graph([builder.apply(BroadcastMul(), [conv, builder.parameter("c", _random(*shape))], "y")])
    result = FoldBatchNorm().run(graph)
    assert result.graph.outputs == graph.outputs
    assert [(r.symbol, "varies within an output channel" in r.reason) for r in result.refusals] == [("y", True)]


def test_one_channel_broadcast_to_many_stays(assert_same_outputs) -> None:
    builder = GraphBuilder()
    weight = builder.parameter("w", _random(1, 4, 3, 3))
    x = builder.input("x", TensorType((1, 4, 6, 6)))
    conv = builder.apply(Convolution(kernel=(3, 3), num_filter=1, no_bias=True), [x, weight])
    graph = builder.graph([builder.apply(BroadcastMul(), [conv, builder.parameter("c", _random(1, 5, 1, 1))])])
    assert_same_outputs(graph, FoldBatchNorm()(graph))


def test_weight_that_is_an_input(assert_same_outputs) -> None:
    builder = GraphBuilder()
    x, weight = builder.input("x", TensorType((1, 4, 6, 6))), builder.input("w", TensorType((4, 4, 3, 3)))
    conv = builder.apply(Convolution(kernel=(3, 3), num_filter=4, no_bias=True), [x, weight], "conv")
    graph = builder.graph([_batch_norm(builder, conv, 4)])
    result = FoldBatchNorm()(graph)
    assert [s.op for s in result.operators] == ["Convolution", "broadcast_mul", "broadcast_add"]
    assert_same_outputs(graph, result)


def test_statistics_that_are_no_parameters_are_refused() -> None:
    builder = GraphBuilder()
    x, gamma = builder.input("x", TensorType((1, 2))), builder.input("gamma", TensorType((2,)))
    others = [builder.parameter("p", np.ones(2, np.float32)) for _ in range(3)]
    result = FoldBatchNorm().run(builder.graph([builder.apply(BatchNorm(), [x, gamma, *others], "bn")]))
    assert [(r.symbol, "is not a parameter" in r.reason) for r in result.refusals] == [("bn", True)]


def test_a_pruned_channel_and_zero_variance(assert_same_outputs) -> None:
    builder = GraphBuilder()
    conv = _convolution(builder, builder.input("x", TensorType((1, 4, 6, 6))))
    values = [np.array(v, np.float32) for v in ([0, 1, 2, 3], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 1])]
    inputs = [conv, *(builder.parameter("p", v) for v in values)]
    graph = builder.graph([builder.apply(BatchNorm(fix_gamma=False), inputs)])
    assert_same_outputs(graph, FoldBatchNorm()(graph))
