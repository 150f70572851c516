"""The float network is compiled once for all that is asked of it, and what is held of weights is small."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest

import mrt
from mrt.calibration.network import FloatNetwork
from mrt.calibration.stream import chunks
from mrt.quantization.expand import plan_graph, rounded_weights
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.simulation.simulation import _references
from mrt.symbol import Evaluate, Graph, NumpyRunner, TensorType
from mrt.symbol.builder import GraphBuilder
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.rebatch import batch_of
from tests.quantization.corrected_networks import calibrated

RNG = np.random.default_rng(3)


def network(width: int = 16, layers: int = 3, constants: int = 1) -> Graph:
    """Layers with relus between, and outputs that depend on no input."""
    builder = GraphBuilder()
    value = builder.input("x", TensorType((1, width)))
    for layer in range(layers):
        weight = RNG.standard_normal((width, width)).astype(np.float32) / np.float32(np.sqrt(width))
        options = FullyConnected(num_hidden=width, no_bias=True)
        value = builder.apply(options, [value, builder.parameter(f"w{layer}", weight)], f"s{layer}")
        value = builder.apply(Relu(), [value], f"relu{layer}") if layer < layers - 1 else value
    values = [builder.parameter(f"c{i}", np.arange(1, 9, dtype=np.float32).reshape(8, 1)) for i in range(constants)]
    return builder.graph([value, *(builder.apply(Relu(), [each]) for each in values)])


GRAPH = network()
X = RNG.standard_normal((32, 16)).astype(np.float32)


class Counting:
    """Runs by NumPy, and keeps what it was asked to run."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []

    def prepare(self, graph: Graph) -> Evaluate:
        self.graphs.append(graph)
        return NumpyRunner().prepare(graph)


def is_simulated(graph: Graph) -> bool:
    return any(symbol.op == "round_to_grid" for symbol in graph.operators)


def test_the_best_preset_makes_one_float_network_and_one_that_is_simulated() -> None:
    """Moments of weights, references and bits of activations are among what it takes from them."""
    runner = Counting()
    weights = QuantizationConfig.model_validate({"weight": {"bits": 5}})
    mrt.quantize(GRAPH, [X], weights, runner=runner)
    assert [is_simulated(graph) for graph in runner.graphs] == [False, True]
    outputs = {symbol.name for symbol in runner.graphs[0].outputs}
    assert {"s0", "relu0", "s1", "relu1", "s2"} <= outputs


def test_what_is_needed_besides_is_compiled_and_what_was_let_go_of_is_made_anew() -> None:
    runner = Counting()
    tensors = [GRAPH.by_name[name] for name in ("s0", "s1", "s2")]
    float_network = FloatNetwork(GRAPH, runner, 4, later=tensors[1:2])
    given = float_network.values(tensors[:1])
    given.evaluate({"x": X[:4]})
    assert float_network.values(tensors[1::-1]).batch == given.batch == batch_of(runner.graphs[0]) == 4
    found = float_network.values(tensors[1::-1]).evaluate({"x": X[:4]})
    wanted = GRAPH.with_outputs(tensors[1::-1])
    rows = [wanted.evaluate({"x": row[None]}) for row in X[:4]]
    for value, every in zip(found, zip(*rows, strict=True), strict=True):
        np.testing.assert_allclose(value, np.concatenate(every), rtol=1e-5, atol=1e-6)
    assert len(runner.graphs) == 1
    float_network.values(tensors[2:]).evaluate({"x": X[:4]})
    float_network.release()
    float_network.values(tensors[:2]).evaluate({"x": X[:4]})
    assert len(runner.graphs) == 3


@pytest.mark.parametrize(("held", "batch"), [(2, 4), (4, 2), (2, 2), (3, 8), (4, 3)])
def test_references_are_what_the_network_gives_for_each_chunk(held: int, batch: int) -> None:
    """However many samples run at once; the last chunk of 7 samples is not full."""
    parts = list(chunks([X[:7]], GRAPH.inputs, held, None))
    found = _references(FloatNetwork(GRAPH, NumpyRunner(), batch), parts)
    for part, (rows, constant) in zip(parts, found, strict=True):
        assert len(rows) == held
        wanted = [GRAPH.evaluate({"x": row[None]}) for row in part.arrays["x"][: part.count]]
        np.testing.assert_allclose(rows[: part.count], np.concatenate([each[0] for each in wanted]), rtol=1e-5)
        np.testing.assert_array_equal(constant, wanted[0][1])


def test_all_rounded_weights_take_little_more_than_their_integers() -> None:
    graph = network(width=256, layers=4, constants=0)
    x = RNG.standard_normal((4, 256)).astype(np.float32)
    planned = plan_graph(graph, calibrated(graph, x).ranges, QuantizationConfig())
    gc.collect()
    tracemalloc.start()
    try:
        weights = rounded_weights(planned)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 2 * 4 * 256**2  # bytes, of weights of 8 bits
    for name, value in weights.items():
        exact = graph.parameters[graph.by_name[name].inputs[1].name]
        assert value.dtype == np.float64
        assert np.abs(value - exact).max() <= np.abs(exact).max() / 127
