"""TFLite's LSTM and plain recurrent layers over sequences, against NumPy and TensorFlow's interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tflite_case import NO_ACTIVATION, RELU, TANH
from tflite_files import File, interpreted

from mrt.errors import UnsupportedOperatorError
from mrt.frontend.tflite import from_tflite

STEPS, BATCH, FEATURES, HIDDEN = 4, 2, 3, 5
LSTM, RNN = "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN"
BOTH = {LSTM: "BIDIRECTIONAL_SEQUENCE_LSTM", RNN: "BIDIRECTIONAL_SEQUENCE_RNN"}
OPTIONS = {
    LSTM: "UnidirectionalSequenceLSTMOptions",
    RNN: "SequenceRNNOptions",
    BOTH[LSTM]: "BidirectionalSequenceLSTMOptions",
    BOTH[RNN]: "BidirectionalSequenceRNNOptions",
}
Arrays = list[np.ndarray | None]


def weights(kind: str, size: int, coupled: bool = False, seed: int = 0) -> Arrays:
    """Of one direction, in the file's order: for each gate i, f, g, o, or of a plain layer, x, h and bias."""
    random = np.random.default_rng(seed)
    shapes = [(HIDDEN, FEATURES), (HIDDEN, size), (HIDDEN,)]
    count = 4 if kind == LSTM else 1
    arrays: Arrays = [random.standard_normal(shape).astype("float32") for shape in shapes for _ in range(count)]
    if coupled:
        arrays[0] = arrays[4] = arrays[8] = None
    return arrays


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def states(
    kind: str, x: np.ndarray, given: Arrays, activation: Any = np.tanh, projection: Any = None, clip: float = np.inf
) -> np.ndarray:
    """After each step of x (steps, batch, features), as the documentation of TFLite's kernels has it."""
    h = np.zeros((BATCH, HIDDEN if projection is None else len(projection)))
    c, found = np.zeros((BATCH, HIDDEN)), []
    for part in x:
        if kind == RNN:
            h = activation(part @ given[0].T + h @ given[1].T + given[2])
        else:
            sums = [
                None if w is None else part @ w.T + h @ r.T + b
                for w, r, b in zip(given[:4], given[4:8], given[8:], strict=True)
            ]
            f = sigmoid(sums[1])
            i = 1 - f if sums[0] is None else sigmoid(sums[0])
            c = np.clip(f * c + i * activation(sums[2]), -clip, clip)
            h = sigmoid(sums[3]) * activation(c)
            h = h if projection is None else h @ projection.T
        found.append(h)
    return np.array(found)


def model(
    kind: str,
    directions: list[Arrays],
    time_major: bool = True,
    projection: np.ndarray | None = None,
    state: bool = True,
    **attributes: Any,
) -> bytes:
    file = File()
    shape = (STEPS, BATCH) if time_major else (BATCH, STEPS)
    size = HIDDEN if projection is None else len(projection)
    inputs, kept = [file.input((*shape, FEATURES))], []
    for given in directions:
        numbers = [-1 if array is None else file.constant(array) for array in given]
        if kind == LSTM:
            extra = [-1 if projection is None else file.constant(projection), -1]
            numbers = [*numbers[:8], -1, -1, -1, *numbers[8:], *extra]
        inputs += numbers
        own = [file.tensor((BATCH, width), variable=state) for width in ([size, HIDDEN] if kind == LSTM else [size])]
        if kind == LSTM:
            kept += own
        else:
            inputs += own
    inputs += kept
    if len(directions) == 2:
        kind = BOTH[kind]
        inputs += [-1] * ((48 if kind == BOTH[LSTM] else 12) - len(inputs))
    merged = attributes.get("MergeOutputs")
    outputs = [file.tensor((*shape, size * 2 if merged else size)) for _ in range(1 if merged else len(directions))]
    file.operator(kind, inputs, outputs, OPTIONS[kind], TimeMajor=time_major, **attributes)
    return file.write(outputs)


def data(time_major: bool = True) -> np.ndarray:
    x = np.random.default_rng(3).standard_normal((STEPS, BATCH, FEATURES)).astype("float32")
    return x if time_major else np.ascontiguousarray(x.transpose(1, 0, 2))


def assert_gives(content: bytes, x: np.ndarray, expected: list[np.ndarray]) -> None:
    graph = from_tflite(content)
    for found, wanted in zip(graph.evaluate({graph.inputs[0].name: x}), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=2e-6)


CASES = [(LSTM, {}), (LSTM, {"coupled": True}), (LSTM, {"projection": True}), (LSTM, {"clip": 0.2}), (RNN, {})]


def case(kind: str, told: dict[str, Any], time_major: bool) -> tuple[bytes, np.ndarray]:
    """The model of one direction, and what it gives of `data`."""
    projection = (
        np.random.default_rng(9).standard_normal((2, HIDDEN)).astype("float32") if "projection" in told else None
    )
    size = HIDDEN if projection is None else 2
    given = weights(kind, size, coupled="coupled" in told)
    clips = {"CellClip": told["clip"]} if "clip" in told else {}
    content = model(kind, [given], time_major, projection, FusedActivationFunction=TANH, **clips)
    expected = states(kind, data(), given, projection=projection, clip=told.get("clip", np.inf))
    return content, expected if time_major else expected.transpose(1, 0, 2)


@pytest.mark.parametrize(("kind", "told"), CASES)
@pytest.mark.parametrize("time_major", [True, False])
def test_one_direction(kind: str, told: dict[str, Any], time_major: bool) -> None:
    """With all gates, with i = 1 − f, with a projected state, and with a clipped cell state."""
    content, expected = case(kind, told, time_major)
    assert_gives(content, data(time_major), [expected])


@pytest.mark.parametrize(("kind", "told"), CASES)
def test_what_is_expected_is_what_tensorflow_gives(kind: str, told: dict[str, Any]) -> None:
    content, expected = case(kind, told, False)
    np.testing.assert_allclose(interpreted(content, [data(False)])[0], expected, atol=2e-6)


@pytest.mark.parametrize("kind", [LSTM, RNN])
@pytest.mark.parametrize("merged", [True, False])
def test_both_directions(kind: str, merged: bool) -> None:
    forward, backward = (weights(kind, HIDDEN, seed=seed) for seed in (1, 2))
    content = model(kind, [forward, backward], FusedActivationFunction=TANH, MergeOutputs=merged)
    expected = [states(kind, data(), forward), states(kind, data()[::-1], backward)[::-1]]
    assert_gives(content, data(), [np.concatenate(expected, 2)] if merged else expected)


@pytest.mark.parametrize("kind", [LSTM, RNN])
def test_both_directions_are_what_tensorflow_gives(kind: str) -> None:
    given = [weights(kind, HIDDEN, seed=seed) for seed in (1, 2)]
    content = model(kind, given, FusedActivationFunction=TANH, MergeOutputs=True)
    (found,) = interpreted(content, [data()])
    assert_gives(content, data(), [found])


@pytest.mark.parametrize("activation", [NO_ACTIVATION, RELU])
def test_other_activations(activation: int) -> None:
    given = weights(RNN, HIDDEN)
    content = model(RNN, [given], FusedActivationFunction=activation)
    function = (lambda x: x) if activation == NO_ACTIVATION else lambda x: np.maximum(x, 0)
    expected = states(RNN, data(), given, function)
    graph = from_tflite(content)
    np.testing.assert_allclose(graph.evaluate({graph.inputs[0].name: data()})[0], expected, rtol=1e-4, atol=1e-4)


def test_what_is_refused() -> None:
    given = weights(LSTM, HIDDEN)
    with pytest.raises(UnsupportedOperatorError, match="DiagonalRecurrentTensors is set"):
        from_tflite(model(LSTM, [given], FusedActivationFunction=TANH, DiagonalRecurrentTensors=True))
    file = File()
    x = file.input((STEPS, BATCH, FEATURES), "int8", scales=[0.1], zero_points=[0])
    result = file.tensor((STEPS, BATCH, HIDDEN), "int8", scales=[0.1], zero_points=[0])
    inputs = [x, *(file.constant(array) for array in weights(RNN, HIDDEN)), file.tensor((BATCH, HIDDEN), variable=True)]
    file.operator(RNN, inputs, [result], OPTIONS[RNN], TimeMajor=True, FusedActivationFunction=TANH)
    with pytest.raises(UnsupportedOperatorError, match="is quantized, states included; the model converted in float"):
        from_tflite(file.write([result]))
