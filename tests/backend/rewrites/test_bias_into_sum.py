"""A bias becomes an input of its convolution, and the integers stay."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import assert_same_values, op

from mrt.backend import compile_model
from mrt.backend.rewrites.bias_into_sum import BiasIntoSum
from mrt.backend.rewrites.rewrite import Facts
from mrt.symbol import Graph, GraphBuilder, Interval, TensorType
from mrt.symbol.bounds import analyse_bounds
from mrt.symbol.quantized_tensor import TensorQuantization


def biased(bias: np.ndarray, weight: int = 127, reads: int = 1) -> Graph:
    """A convolution of 4 channels to 3, and what is added to it; reads: how many read the convolution."""
    builder = GraphBuilder()
    data = builder.input("x", TensorType((1, 4, 5, 5), "uint8"))
    weights = builder.parameter("weight", np.full((3, 4, 3, 3), weight, np.int8))
    layer = builder.apply(op("Convolution", kernel=(3, 3), num_filter=3, no_bias=True), [data, weights])
    total = builder.apply(op("broadcast_add"), [layer, builder.parameter("bias", bias)])
    others = [builder.apply(op("relu"), [layer]) for _ in range(reads - 1)]
    return builder.graph([total, *others])


PER_CHANNEL = np.array([-(2**20), 5, 2**20], np.int32).reshape(1, 3, 1, 1)


@pytest.mark.parametrize(
    ("graph", "is_early"),
    [
        (biased(PER_CHANNEL), True),
        (biased(PER_CHANNEL, reads=2), False),
        (biased(np.full((1, 1, 1, 1), 7, np.int32)), False),
        (biased(np.full((1, 1, 3, 3), 7, np.int32)), False),
    ],
    ids=["by channel", "read by others", "one for all", "by position"],
)
def test_a_constant_for_each_output_channel_is_the_bias(graph: Graph, is_early: bool) -> None:
    found = BiasIntoSum()(graph)
    assert ("broadcast_add" not in {symbol.op for symbol in found.operators}) is is_early
    feeds = {"x": np.random.default_rng(0).integers(0, 256, (1, 4, 5, 5)).astype(np.uint8)}
    assert_same_values(found, found.evaluate(feeds), graph.evaluate(feeds))


@pytest.mark.parametrize("is_given", [True, False])
@pytest.mark.parametrize("room", [0, 128 * 127 * 36])
def test_a_bias_with_which_sums_leave_32_bits_on_the_way_is_added_late(is_given: bool, room: int) -> None:
    """Of int8 a dot of bytes begins with 128 times the weights, which the certificate knows nothing of."""
    builder, highest = GraphBuilder(), 2**31 - 1 - room
    data = builder.input("x", TensorType((1, 4, 5, 5), "int8"))
    weights = builder.parameter("weight", np.full((3, 4, 3, 3), -127, np.int8))
    bias = builder.parameter("bias", np.full((3,) if is_given else (1, 3, 1, 1), highest - 3 * 127 * 36, np.int32))
    layer = op("Convolution", kernel=(3, 3), num_filter=3, no_bias=not is_given)
    total = builder.apply(layer, [data, weights, *([bias] if is_given else [])])
    graph = builder.graph([total if is_given else builder.apply(op("broadcast_add"), [total, bias])])
    known = {"x": Interval.of(-3, 0, data.shape)}
    analyse_bounds(graph, known)
    found = BiasIntoSum(Facts(known=known))(graph)
    assert [s.op for s in found.operators] == (["Convolution"] if room else ["Convolution", "broadcast_add"])
    facts = [TensorQuantization("x", data.shape, "int8", 1.0, 0, -3, 0)]
    outputs = [TensorQuantization(s.name, s.shape, s.dtype, 1.0, 0, 0, 0) for s in graph.outputs]
    compiled = compile_model(graph, facts, outputs, None, "0" * 64).run_integer(np.full(data.shape, -3, np.int8))
    assert np.unique(compiled).tolist() == [highest]
