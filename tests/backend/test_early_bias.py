"""A bias becomes an input of its convolution, and the integers stay."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import compare, op

from mrt.backend.early_bias import EarlyBias
from mrt.backend.known_bounds import known_bounds
from mrt.symbol import Graph, GraphBuilder, TensorType


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
    found = EarlyBias(known_bounds(graph, {}))(graph)
    assert ("broadcast_add" not in {symbol.op for symbol in found.operators}) is is_early
    feeds = {"x": np.random.default_rng(0).integers(0, 256, (1, 4, 5, 5)).astype(np.uint8)}
    compare(found, found.evaluate(feeds), graph.evaluate(feeds))
