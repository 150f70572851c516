"""MXNet's fused RNN operator against PyTorch, whose gates and weights have the same order, and against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from mxnet_files import random, symbol_json

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend import from_mxnet
from mrt.symbol import Graph

torch = pytest.importorskip("torch")
STEPS, BATCH, FEATURES, HIDDEN = 4, 2, 3, 5


def network(
    parameters: np.ndarray, states: dict[str, np.ndarray], outputs: int = 1, gluon: bool = False, **attributes: str
) -> Graph:
    """An RNN node on x; gluon: as Gluon exports it, its parameters put together and its states zeros of any batch."""
    variables = ["x", "parameters", *states]
    nodes = [("null", name, []) for name in variables]
    inputs = [[place, 0] for place in range(len(variables))]
    arrays = {"parameters": parameters}
    if gluon:
        arrays = {"a": parameters[:7], "parameters": parameters[7:].reshape(1, -1)}
        nodes += [("null", "a", []), ("Reshape", "flat", [[1, 0]], {"shape": "(-1,)"})]
        nodes += [("_rnn_param_concat", "all", [[2, 0], [3, 0]], {"dim": "0", "num_args": "2"})]
        count = int(attributes["num_layers"])
        nodes += [("_zeros", "begin", [], {"shape": f"({count}, 0, {HIDDEN})"})]
        inputs = [[0, 0], [4, 0], [5, 0], [5, 0]]
    nodes.append(("RNN", "y", inputs, {"state_size": str(HIDDEN), **attributes}))
    heads = [[len(nodes) - 1, output] for output in range(outputs)]
    shapes = {"x": (STEPS, BATCH, FEATURES), **{name: state.shape for name, state in states.items()}}
    return from_mxnet(symbol_json(*nodes, heads=heads), arrays, shapes)


def vector(layer: torch.nn.RNNBase) -> np.ndarray:
    """The parameters of PyTorch's layer in MXNet's order: all weights, then all biases."""
    named = dict(layer.named_parameters())
    kept = [value for name, value in named.items() if "bias" not in name]
    kept += [value for name, value in named.items() if "bias" in name]
    return np.concatenate([value.detach().numpy().reshape(-1) for value in kept])


@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_modes_layers_and_directions(mode: str, layers: int, bidirectional: bool) -> None:
    torch.manual_seed(0)
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}.get(mode, torch.nn.RNN)
    more = {"nonlinearity": mode.removeprefix("rnn_")} if kind is torch.nn.RNN else {}
    layer = kind(FEATURES, HIDDEN, layers, bidirectional=bidirectional, **more)
    names = ("h", "c") if mode == "lstm" else ("h",)
    states = {name: random(layers * (1 + bidirectional), BATCH, HIDDEN, seed=k) for k, name in enumerate(names)}
    x = random(STEPS, BATCH, FEATURES)
    given = [torch.from_numpy(state) for state in states.values()]
    with torch.no_grad():
        y, last = layer(torch.from_numpy(x), tuple(given) if mode == "lstm" else given[0])
    expected = [y, *(last if mode == "lstm" else (last,))]
    attributes = {"mode": mode, "num_layers": str(layers), "bidirectional": str(bidirectional), "state_outputs": "True"}
    graph = network(vector(layer), states, len(expected), **attributes)
    for found, wanted in zip(graph.evaluate({"x": x, **states}), expected, strict=True):
        np.testing.assert_allclose(found, wanted.numpy(), atol=2e-6)


def test_as_gluon_exports_a_layer() -> None:
    layer = torch.nn.LSTM(FEATURES, HIDDEN, 2)
    x = random(STEPS, BATCH, FEATURES)
    graph = network(vector(layer), {}, gluon=True, mode="lstm", num_layers="2")
    with torch.no_grad():
        expected = layer(torch.from_numpy(x))[0].numpy()
    np.testing.assert_allclose(graph.evaluate({"x": x})[0], expected, atol=2e-6)
    assert [symbol.name for symbol in graph.inputs] == ["x"]


def test_projected_and_clipped_states() -> None:
    """h' = P (o tanh(c')), c' within ±0.2; by the formulas, which PyTorch clips nothing in."""
    shapes = [(4 * HIDDEN, FEATURES), (4 * HIDDEN, 2), (2, HIDDEN), (4 * HIDDEN,), (4 * HIDDEN,)]
    arrays = [random(*shape, seed=k) for k, shape in enumerate(shapes)]
    w, r, p, b, c = arrays
    x, h, memory, expected = random(STEPS, BATCH, FEATURES), np.zeros((BATCH, 2)), np.zeros((BATCH, HIDDEN)), []
    for part in x:
        i, f, g, o = np.split(part @ w.T + b + h @ r.T + c, 4, axis=1)
        memory = np.clip(memory / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i)), -0.2, 0.2)
        h = (np.tanh(memory) / (1 + np.exp(-o))) @ p.T
        expected.append(h)
    clip = {"lstm_state_clip_min": "-0.2", "lstm_state_clip_max": "0.2", "projection_size": "2"}
    graph = network(np.concatenate([a.reshape(-1) for a in arrays]), {}, mode="lstm", num_layers="1", **clip)
    np.testing.assert_allclose(graph.evaluate({"x": x})[0], expected, atol=2e-6)


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedOperatorError, match="use_sequence_length is True"):
        network(random(65), {}, mode="rnn_tanh", num_layers="1", use_sequence_length="True")
    with pytest.raises(GraphError, match=r"y \(RNN\): has 7 parameters; 50 are needed"):
        network(random(7), {}, mode="rnn_tanh", num_layers="1")
