"""Quantized networks give the same integers with their chains simplified as without, and fewer operators."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.model import assemble
from mrt.quantization.expand import expand_graph
from mrt.quantization.integer.simplified import simplified
from mrt.quantization.options import QuantizationConfig
from mrt.report.inspect import overview
from mrt.symbol import Array, Graph, Operator
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from tests.matrix import PAIRS, extreme_feeds
from tests.quantization.networks import chain, observe, random_samples

SHAPE = (1, 4, 6, 6)


def normal(*shape: int) -> Array:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def layer(after: Operator) -> list[tuple[Operator, list[Array]]]:
    return [
        (Convolution((3, 3), 4, pad=(1, 1), no_bias=True), [normal(4, 4, 3, 3)]),
        (BroadcastAdd(), [normal(1, 4, 1, 1)]),
        (after, []),
    ]


NETWORKS: dict[str, Graph] = {
    "relu": chain(SHAPE, *layer(Relu()), *layer(Relu())),
    "relu6": chain(SHAPE, *layer(Clip(0, 6)), (BroadcastMul(), [normal(1, 4, 1, 1)]), *layer(Clip(0, 6))),
    "linear": chain(SHAPE, *layer(Relu()), *layer(Relu())[:2], (BroadcastMul(), [np.array([-3.0])]), *layer(Relu())),
}


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.parametrize("network", NETWORKS)
def test_integers_are_those_of_the_network_as_expanded(network: str, pair: tuple[str, str]) -> None:
    graph = NETWORKS[network]
    sections = {"activation": {"quantizer": pair[0]}, "weight": {"quantizer": pair[1]}}
    config, ranges = QuantizationConfig.model_validate(sections), observe(graph, random_samples(graph))
    plain = expand_graph(graph, ranges, config)
    fewer = simplified(plain)
    assert len(fewer.graph.operators) <= len(plain.graph.operators)
    for feeds in extreme_feeds(plain):
        expected = dict(plain.graph.walk(feeds))
        for symbol, value in fewer.graph.walk(feeds):
            if symbol.name in plain.graph.by_name:  # what stands in tables under a name is the same tensor
                np.testing.assert_array_equal(value, expected[plain.graph.by_name[symbol.name]])
    assert [q.symbol.name for q in fewer.outputs] == [q.symbol.name for q in plain.outputs]
    assert set(fewer.scales) <= set(plain.scales)


def test_the_overview_says_what_was_simplified_and_what_was_not() -> None:
    graph = NETWORKS["relu"]
    ranges = observe(graph, random_samples(graph))
    integer = expand_graph(graph, ranges, QuantizationConfig())
    told = overview(assemble(simplified(integer), None, ranges)).splitlines()
    notes = [line for line in told if "simplified by drop relu: " in line]
    assert len(notes) in (1, 2) and all(line.startswith("note: ") for line in notes)
