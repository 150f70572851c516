"""Ranges are those of plain NumPy over all samples, for any batching."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest

from mrt.calibration import Calibration, CalibrationConfig, Channels, Needs, Range, calibrate
from mrt.errors import ConfigError, DataError, GraphError
from mrt.symbol import Array, Evaluate, Graph, GraphBuilder, NumpyRunner, TensorType
from mrt.symbol.operators.activation import Relu, Tanh
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastDiv
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.transform import Reshape

RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(23, 5)).astype(np.float32)
WEIGHT = RANDOM.normal(size=(4, 5)).astype(np.float32)
NAMES = ("x", "w", "fc", "act", "squashed", "folded")


def _graph(baked: bool = False) -> Graph:
    builder = GraphBuilder()
    x, w = builder.input("x", TensorType((1, 5))), builder.parameter("w", WEIGHT)
    fc = builder.apply(FullyConnected(num_hidden=4, no_bias=True), [x, w], "fc")
    act = builder.apply(Relu(), [builder.apply(Reshape(shape=(1, 4)), [fc]) if baked else fc], "act")
    folded = builder.apply(Relu(), [builder.parameter("p", np.array([[-1, 2, 3, 4]], np.float32))], "folded")
    return builder.graph([builder.apply(Tanh(), [builder.apply(BroadcastAdd(), [act, folded])], "squashed")])


def _batches(*lengths: int) -> list[Mapping[str, Array]]:
    bounds = np.cumsum([0, *lengths])
    return [{"x": X[a:b]} for a, b in pairwise(bounds)]


class CountingRunner(NumpyRunner):
    """Runs by NumPy and remembers the batch sizes that it was asked for."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def prepare(self, graph: Graph) -> Evaluate:
        self.batches.append(graph.inputs[0].shape[0])
        return super().prepare(graph)


@pytest.mark.parametrize("baked", [False, True])
def test_max_is_the_range_over_all_samples(baked: bool) -> None:
    runner = CountingRunner()
    found = calibrate(_graph(baked), _batches(10, 13), Needs(NAMES), CalibrationConfig(batch_size=8), runner).ranges
    product = X.astype(np.float64) @ WEIGHT.astype(np.float64).T
    positive = np.maximum(product, 0)
    expected = {
        "x": X,
        "w": WEIGHT,
        "fc": product,
        "act": positive,
        "squashed": np.tanh(positive + np.array([0, 2, 3, 4])),
        "folded": np.array([0, 4]),
    }
    assert list(found) and set(found) == set(NAMES)
    for name, values in expected.items():
        assert (found[name].lo, found[name].hi) == pytest.approx((values.min(), values.max()), rel=1e-6)
    assert runner.batches == [1 if baked else 8]


@pytest.mark.parametrize("method", ["max", "historical", "percentile", "mse"])
def test_any_batching_gives_the_same_bits(method: str) -> None:
    config = CalibrationConfig(method=method, lambda_=1.0, batch_size=4)
    graph = _graph()
    means = [Channels("x", 1), Channels("squashed", 1)]
    results = [
        calibrate(graph, _batches(*lengths), Needs(NAMES, tuple(means)), config, NumpyRunner())
        for lengths in ([23], [23], [1] * 23, [4, 4, 4, 4, 4, 3], [3, 0, 7, 12, 1], [22, 1])
    ]
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("method", ["max", "historical", "percentile", "mse"])
def test_any_number_of_cores_gives_the_same_bits(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = CalibrationConfig(method=method, lambda_=1.0, batch_size=2)
    means = [Channels("x", 1), Channels("squashed", 1)]
    results = []
    for count in (1, 2, 5):
        monkeypatch.setattr("mrt.workers.cores", lambda count=count: count)
        results.append(calibrate(_graph(), _batches(23), Needs(NAMES, tuple(means)), config, NumpyRunner()))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("count", [1, 3])
def test_the_first_sample_that_fails_is_named_whatever_follows(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mrt.workers.cores", lambda: count)
    spoiled = X.copy()
    spoiled[[6, 8], 1] = 3e38
    config = CalibrationConfig(batch_size=2)
    with pytest.raises(DataError, match=r"fc .* holds -?inf in calibration sample 6"):
        calibrate(_graph(), [{"x": spoiled}, {"y": X}], Needs(("fc",)), config, NumpyRunner())


@pytest.mark.parametrize(("budget", "batch"), [(2**25, 16), (52 * 6 - 1, 5), (52, 1), (1, 1)])
def test_chunks_are_as_long_as_the_observed_tensors_fit(
    budget: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, names = _graph(), ["x", "act", "squashed"]  # 5 + 4 + 4 float32 of a sample: 52 bytes
    monkeypatch.setattr("mrt.calibration.network.CHUNK_BYTES", budget)
    runner = CountingRunner()
    found = calibrate(graph, _batches(23), Needs(tuple(names)), CalibrationConfig(), runner)
    assert runner.batches == [batch]
    monkeypatch.undo()
    assert found == calibrate(graph, _batches(23), Needs(tuple(names)), CalibrationConfig(), NumpyRunner())


@pytest.mark.parametrize(("method", "outlier"), [("percentile", 1000.0), ("mse", 15.0)])
def test_an_outlier_is_left_out_of_the_tensor_and_of_its_channels(method: str, outlier: float) -> None:
    data = RANDOM.normal(size=(40, 3, 8, 8)).astype(np.float32)
    data[7, 1, 2, 3] = outlier
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 3, 8, 8)))
    graph = builder.graph([builder.apply(Relu(), [x], "y")])
    config = CalibrationConfig.model_validate({"method": method, "percentile": 99.9, "bits": 4})
    found = calibrate(graph, [data], Needs(("y",)), config, NumpyRunner()).ranges["y"]
    assert found.lo == 0 and found.hi < 10
    assert found.channels[1] == (0, found.hi)
    assert found.channels[0] == (0, min(data[:, 0].max(), found.hi))


def test_historical_narrows_and_leaves_parameters_exact() -> None:
    config = CalibrationConfig.model_validate({"method": "historical", "lambda": 0.5})
    found = calibrate(_graph(), _batches(23), Needs(NAMES), config, NumpyRunner()).ranges
    reach = 0.0
    for sample in X.astype(np.float64):
        spread = abs(sample.mean()) + 0.5 * sample.std()
        reach = max(reach, spread if spread < 0.95 * np.abs(sample).max() else np.abs(sample).max())
    assert found["x"].lo == pytest.approx(max(X.min(), -reach)) and found["x"].hi == pytest.approx(min(X.max(), reach))
    assert found["w"] == Range(float(WEIGHT.min()), float(WEIGHT.max()))
    assert found["act"].lo == 0


def test_samples_and_progress() -> None:
    seen: list[int] = []
    config = CalibrationConfig(samples=10, batch_size=4)
    found = calibrate(_graph(), _batches(7, 16), Needs(("x",)), config, NumpyRunner(), seen.append).ranges
    assert seen == [4, 8, 10]
    assert found["x"] == Range(float(X[:10].min()), float(X[:10].max()))


@pytest.mark.parametrize("baked", [False, True])
def test_means_are_those_of_numpy(baked: bool) -> None:
    asked = [Channels("act", 1), Channels("x", 1), Channels("folded", 1), Channels("act", 1)]
    found = calibrate(
        _graph(baked), _batches(10, 13), Needs(("x",), tuple(asked)), CalibrationConfig(batch_size=8), NumpyRunner()
    )
    positive = np.maximum(X.astype(np.float64) @ WEIGHT.astype(np.float64).T, 0)
    expected = {Channels("act", 1): positive.mean(axis=0), Channels("x", 1): X.mean(axis=0, dtype=np.float64)}
    assert set(found.ranges) == {"x"} and list(found.means) == [*expected, Channels("folded", 1)]
    for channels, mean in expected.items():
        np.testing.assert_allclose(found.means[channels], mean, rtol=1e-6)
    assert found.means[Channels("folded", 1)] == (0.0, 2.0, 3.0, 4.0)


def test_mean_squares_are_those_of_numpy_however_batched() -> None:
    asked = (Channels("act", 1), Channels("x", 1))
    config = CalibrationConfig(batch_size=8)
    found = [
        calibrate(_graph(), _batches(*lengths), Needs(("x",), (asked[1],), asked), config, NumpyRunner())
        for lengths in ((10, 13), (1, 5, 17))
    ]
    assert found[0] == found[1]
    positive = np.maximum(X.astype(np.float64) @ WEIGHT.astype(np.float64).T, 0)
    for channels, values in zip(asked, (positive, X.astype(np.float64)), strict=True):
        np.testing.assert_allclose(found[0].squares[channels], np.square(values).mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found[0].means[asked[1]], X.mean(axis=0, dtype=np.float64), rtol=1e-6)


def test_a_calibration_covers_what_it_holds() -> None:
    a, b = Channels("a", 1), Channels("b", 1)
    found = Calibration({"a": Range(0.0, 1.0)}, {a: (0.5,)}, {a: (1.0,), b: (2.0,)})
    for held in (Needs(), Needs(("a",), (a,), (b, a))):
        assert found.covers(held)
    for missing in (Needs(("b",)), Needs(means=(b,)), Needs(squares=(Channels("a", 2),))):
        assert not found.covers(missing)


def test_a_calibration_survives_its_file() -> None:
    means = {Channels("a", 1): (0.1, -1e-300, 1 / 3), Channels("a", 2): (5.0,)}
    split = Range(-1.0, 2.0, ((-1.0, 1 / 3), (0.0, 2.0)), 70)
    squares = {Channels("b", 1): (1e300, 2 / 3)}
    found = Calibration({"a": Range(-1 / 3, 1e30), "b": Range(0.0, 0.0), "c": split}, means, squares)
    assert Calibration.from_json(json.loads(json.dumps(found.to_json()))) == found
    with pytest.raises(ValueError, match="format_version is 1, 4 is needed"):
        Calibration.from_json({"format_version": 1, "thresholds": {}})


def test_several_inputs_and_one_that_nothing_reads() -> None:
    builder = GraphBuilder()
    a, b = builder.input("a", TensorType((1, 2))), builder.input("b", TensorType((1, 2)))
    graph = builder.graph([builder.apply(Relu(), [a], "y")])
    data = {"a": X[:, :2], "b": X[:, 2:4]}
    found = calibrate(graph, [data], Needs(("y", "b")), CalibrationConfig(), NumpyRunner()).ranges
    assert found["b"] == Range(float(data["b"].min()), float(data["b"].max())) and b in graph.inputs


def test_infinity_inside_names_tensor_and_sample() -> None:
    builder = GraphBuilder()
    a, b = builder.input("a", TensorType((1, 1))), builder.input("b", TensorType((1, 1)))
    graph = builder.graph([builder.apply(BroadcastDiv(), [a, b], "ratio")])
    ones = np.ones((6, 1), np.float32)
    zero_at_5 = np.where(np.arange(6)[:, None] == 5, 0, ones).astype(np.float32)
    with pytest.raises(DataError, match=r"ratio .*inf in calibration sample 5"):
        calibrate(
            graph, [{"a": ones, "b": zero_at_5}], Needs(("ratio",)), CalibrationConfig(batch_size=4), NumpyRunner()
        )


def test_non_finite_parameter_is_named() -> None:
    builder = GraphBuilder()
    x, p = builder.input("x", TensorType((1, 2))), builder.parameter("p", np.array([[np.nan, 0]], np.float32))
    graph = builder.graph([builder.apply(BroadcastAdd(), [x, p], "y")])
    with pytest.raises(DataError, match="parameter p"):
        calibrate(graph, [X[:, :2]], Needs(("p",)), CalibrationConfig(), NumpyRunner())


def test_unknown_tensor_is_named_with_the_nearest() -> None:
    with pytest.raises(GraphError, match="squashd.*squashed"):
        calibrate(_graph(), _batches(23), Needs(("squashd",)), CalibrationConfig(), NumpyRunner())


def test_no_samples() -> None:
    with pytest.raises(DataError, match="no samples"):
        calibrate(_graph(), [], Needs(NAMES), CalibrationConfig(), NumpyRunner())


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "median"},
        {"lambda": 0},
        {"batch_size": 0},
        {"samples": 0},
        {"lambd": 3.0},
        {"percentile": 101},
        {"bits": 1},
    ],
)
def test_config_is_checked(wrong) -> None:
    with pytest.raises(ConfigError, match="CalibrationConfig"):
        CalibrationConfig.model_validate(wrong)


@pytest.mark.parametrize("method", ["max", "historical", "percentile", "mse"])
def test_memory_does_not_grow_with_samples(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mrt.workers.cores", lambda: 1)  # of several, how many chunks meet at their peaks is chance
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 5_000)))
    graph = builder.graph([builder.apply(Relu(), [x], "y")])
    config = CalibrationConfig(method=method, batch_size=4)

    def peak(samples: int) -> int:
        stream = ({"x": np.full((2, 5_000), i, np.float32)} for i in range(samples // 2))
        tracemalloc.start()
        calibrate(graph, stream, Needs(("x", "y"), (Channels("x", 1),)), config, NumpyRunner())
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(8)
    assert peak(256) < 1.1 * peak(32) + 100_000


def test_a_chain_of_thousands_of_operators() -> None:
    builder = GraphBuilder()
    y = builder.input("x", TensorType((1, 2)))
    for i in range(3_000):
        y = builder.apply(Relu(), [y], f"relu{i}")
    graph = builder.graph([y])
    found = calibrate(
        graph, [X[:3, :2]], Needs(tuple(s.name for s in graph.symbols)), CalibrationConfig(), NumpyRunner()
    ).ranges
    assert len(found) == 3_001 and found["relu2999"].hi == max(0.0, float(X[:3, :2].max()))
