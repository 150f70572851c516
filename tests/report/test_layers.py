"""What a layer is: heads with what follows them alone, in networks of any shape."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.report.layers import FloatLayer, channels_of, detail_of, find_layers, follower_names, kind_of_layer, reads_of
from mrt.symbol import Graph, GraphBuilder, Symbol, TensorType, find_operator


class Network:
    """Builds graphs by the names of operators."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()

    def input(self, name: str, *shape: int) -> Symbol:
        return self.builder.input(name, TensorType(shape))

    def parameter(self, name: str, *shape: int) -> Symbol:
        return self.builder.parameter(name, np.ones(shape, np.float32))

    def __call__(self, op: str, name: str, *inputs: Symbol, **attributes: object) -> Symbol:
        return self.builder.apply(find_operator(op)(**attributes), list(inputs), name)

    def conv(self, name: str, x: Symbol, channels: int, groups: int = 1) -> Symbol:
        weight = self.parameter(f"{name}_w", channels, x.shape[1] // groups, 3, 3)
        made = self(
            "Convolution", f"{name}_sum", x, weight, kernel=(3, 3), pad=(1, 1), num_filter=channels, num_group=groups,
            no_bias=True,
        )  # fmt: skip
        return self("broadcast_add", name, made, self.parameter(f"{name}_b", 1, channels, 1, 1))


def parts(graph: Graph) -> list[list[str]]:
    """The symbols of each layer, after checking that every one is of exactly one."""
    layers = find_layers(graph)
    names = [symbol.name for layer in layers for symbol in layer.symbols]
    assert sorted(names) == sorted(symbol.name for symbol in (*graph.inputs, *graph.operators))
    assert [layer.place for layer in layers] == list(range(len(layers)))
    return [[symbol.name for symbol in layer.symbols] for layer in layers]


def test_a_layer_is_a_head_and_what_follows_it_alone() -> None:
    net = Network()
    x = net.input("x", 1, 4, 8, 8)
    first = net("relu", "first_relu", net.conv("first", x, 4))
    padded = net("Pad", "pad", first, mode="constant", pad_width=(0, 0, 0, 0, 1, 1, 1, 1))
    second = net.conv("second", padded, 4, groups=4)
    pooled = net("Pooling", "pool", second, kernel=(2, 2), stride=(2, 2), pool_type="max")
    flat = net("Flatten", "flat", pooled)
    weight = net.parameter("dense_w", 3, flat.shape[1])
    out = net("FullyConnected", "out", flat, weight, num_hidden=3, no_bias=True)
    graph = net.builder.graph([out])
    assert parts(graph) == [
        ["x"], ["first_sum", "first", "first_relu"], ["pad", "second_sum", "second"], ["pool"], ["flat", "out"]
    ]  # fmt: skip
    layers = find_layers(graph)
    kinds = [kind_of_layer(layer, graph) for layer in layers]
    assert kinds == ["input", "convolution", "depthwise convolution", "pooling", "dense"]
    assert [detail_of(layer) for layer in layers] == ["", "3×3", "3×3", "2×2 /2", ""]
    assert [channels_of(layer, graph) for layer in layers] == ["", "4→4", "4→4", "", f"{flat.shape[1]}→3"]
    assert [list(follower_names(layer, graph)) for layer in layers] == [[], ["relu"], [], [], []]
    assert [layer.end.name for layer in layers] == ["x", "first_relu", "second", "pool", "out"]
    owner = {symbol.name: layer for layer in layers for symbol in layer.symbols}
    assert [reads_of(layer, owner) for layer in layers] == [[], [0], [1], [2], [3]]


def test_a_sum_of_two_layers_is_a_layer_and_a_side_path_is_none() -> None:
    """x * sigmoid(x) belongs to what gives x; a shortcut around another layer does not."""
    net = Network()
    x = net.input("x", 1, 4, 8, 8)
    first = net.conv("first", x, 4)
    swish = net("elemwise_mul", "swish", first, net("sigmoid", "gate", first))
    second = net.conv("second", swish, 4)
    out = net("relu", "out", net("elemwise_add", "shortcut", swish, second))
    graph = net.builder.graph([out])
    assert parts(graph) == [
        ["x"], ["first_sum", "first", "gate", "swish"], ["second_sum", "second"], ["shortcut", "out"]
    ]  # fmt: skip
    assert kind_of_layer(find_layers(graph)[3], graph) == "add"


def test_attention_has_layers_of_its_products_and_its_softmax() -> None:
    net = Network()
    x = net.input("x", 1, 6, 8)
    flat = net("Reshape", "rows", x, shape=(6, 8))
    q, k, v = (net("FullyConnected", n, flat, net.parameter(f"{n}_w", 8, 8), num_hidden=8, no_bias=True) for n in "qkv")
    q, k, v = (net("expand_dims", f"{s.name}_batch", s, axis=0) for s in (q, k, v))
    scores = net("_mul_scalar", "scaled", net("batch_dot", "scores", q, k, transpose_b=True), scalar=0.35)
    mixed = net("batch_dot", "mixed", net("softmax", "softmax", scores), v)
    graph = net.builder.graph([mixed])
    assert parts(graph) == [
        ["x"], ["rows"], ["q"], ["k"], ["q_batch", "k_batch", "scores", "scaled"], ["softmax"], ["v"],
        ["v_batch", "mixed"],
    ]  # fmt: skip
    assert {"matmul", "softmax", "dense"} <= {kind_of_layer(layer, graph) for layer in find_layers(graph)}


@pytest.mark.parametrize("length", [3000])
def test_long_chains_are_walked_without_recursion(length: int) -> None:
    net = Network()
    symbol = net.input("x", 1, 2)
    for place in range(length):
        symbol = net("tanh" if place % 2 else "softmax", f"s{place}", symbol)
    layers: tuple[FloatLayer, ...] = find_layers(net.builder.graph([symbol]))
    assert len(layers) == 1 + length // 2


def test_what_several_read_ends_a_layer_and_outputs_do_too() -> None:
    net = Network()
    x = net.input("x", 1, 4, 8, 8)
    first = net.conv("first", x, 4)
    left, right = net("relu", "left", first), net("tanh", "right", first)
    halves = [net("slice_axis", f"half{k}", left, axis=1, begin=2 * k, end=2 * k + 2) for k in range(2)]
    ends = [net.conv(f"end{k}", half, 2) for k, half in enumerate(halves)]
    graph = net.builder.graph([*ends, right, net("Concat", "joined", *ends, dim=1)])
    assert parts(graph) == [
        ["x"], ["first_sum", "first"], ["left"], ["half0", "end0_sum", "end0"], ["half1", "end1_sum", "end1"],
        ["right"], ["joined"],
    ]  # fmt: skip
