"""Ranges that follow from those of another tensor are, to the bit, what observing the tensor gives."""

from __future__ import annotations

import numpy as np
import pytest

from mrt.calibration import CalibrationConfig, Channels, Needs, calibrate
from mrt.errors import DataError
from mrt.symbol import Array, Evaluate, Graph, NumpyRunner, Operator, Runner
from mrt.symbol.operators.activation import Clip, Relu
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.pad import Pad
from mrt.symbol.operators.transform import ExpandDims, Reshape, SliceAxis, Transpose
from tests.quantization.networks import chain

RANDOM = np.random.default_rng(5)
DATA = (RANDOM.standard_t(2, (9, 2, 6, 5)) * 100).astype(np.float32)
PADDED = Pad(pad_width=(0, 0, 0, 0, 1, 2, 0, 1), constant_value=-0.25)
POINTWISE = Convolution((1, 1), 3, no_bias=True)


class RecordingRunner(NumpyRunner):
    """Runs by NumPy and remembers what it was asked for."""

    def __init__(self) -> None:
        self.outputs: list[str] = []

    def prepare(self, graph: Graph) -> Evaluate:
        self.outputs += [symbol.name for symbol in graph.outputs]
        return super().prepare(graph)


def weight(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(np.float32)


def network() -> Graph:
    """The biases are of all magnitudes beside the sums, so that additions round."""
    bias = (RANDOM.standard_normal((1, 3, 1, 1)) * np.array([1e-6, 1.0, 1e6]).reshape(1, 3, 1, 1)).astype(np.float32)
    return chain(
        (1, 2, 6, 5),
        (POINTWISE, [weight(3, 2, 1, 1)]),
        (BroadcastAdd(), [bias]),
        (Clip(a_min=-1.3, a_max=0.1), []),
        (PADDED, []),
        (Relu(), []),
        (Convolution((3, 3), 4, no_bias=True), [weight(4, 3, 3, 3)]),
        (BroadcastAdd(), [weight(4, 1, 1)]),
    )


def tvm_runner() -> Runner:
    from mrt.backend import TvmRunner

    return TvmRunner()


@pytest.mark.parametrize("make", [NumpyRunner, tvm_runner])
def test_what_is_derived_is_what_is_observed(make) -> None:
    """A tensor whose means are asked for is observed itself."""
    graph, config = network(), CalibrationConfig(batch_size=4)
    names = [symbol.name for symbol in graph.operators]
    derived = calibrate(graph, [DATA], Needs(tuple(names)), config, make()).ranges
    means = [Channels(name, 1) for name in names]
    assert derived == calibrate(graph, [DATA], Needs(tuple(names), tuple(means)), config, make()).ranges


def test_what_follows_is_not_run() -> None:
    graph, runner = network(), RecordingRunner()
    names = [symbol.name for symbol in graph.operators]
    found = calibrate(graph, [DATA], Needs(tuple(names)), CalibrationConfig(), runner).ranges
    assert runner.outputs == ["s0", "s5"]
    values = {
        name: np.concatenate([v for x in DATA for s, v in graph.walk({"x": x[None]}) if s.name == name])
        for name in names
    }
    for name, value in values.items():
        ends = np.stack([value.min(axis=(0, 2, 3)), value.max(axis=(0, 2, 3))], axis=1)
        assert found[name].channels == tuple(map(tuple, ends.astype(float).tolist()))
        assert (found[name].lo, found[name].hi) == (value.min(), value.max())
        assert found[name].observations == value.size // value.shape[1]


MOVES = [
    ("channels stay one axis", Transpose(axes=(0, 2, 1, 3)), True),
    ("their axis is split", Reshape(shape=(1, 3, 2, 3, 5)), True),
    ("another axis counts them", Reshape(shape=(1, 5, 6, 3)), False),
    ("no channels are told apart", Reshape(shape=(18, 5)), True),
    ("nor here", Transpose(axes=(1, 0, 2, 3)), True),
    ("some elements only", SliceAxis(axis=2, begin=0, end=3), False),
]


@pytest.mark.parametrize(("operator", "follows"), [each[1:] for each in MOVES], ids=[each[0] for each in MOVES])
def test_what_only_moves_elements_has_their_range(operator: Operator, follows: bool) -> None:
    graph, runner = chain((1, 2, 6, 5), (POINTWISE, [weight(3, 2, 1, 1)]), (operator, [])), RecordingRunner()
    needs, config = Needs(("s0", "s1")), CalibrationConfig(batch_size=1)
    found = calibrate(graph, [DATA], needs, config, runner).ranges
    assert runner.outputs == (["s0"] if follows else ["s0", "s1"])
    observed = calibrate(graph, [DATA], Needs(("s1",)), config, NumpyRunner()).ranges
    assert found["s1"] == observed["s1"]


@pytest.mark.parametrize(
    ("operator", "parameters"),
    [
        (BroadcastMul(), [np.float32([[[-1]], [[2]], [[3]]])]),
        (BroadcastAdd(), [weight(1, 3, 6, 5)]),
        (ExpandDims(axis=0), []),
    ],
)
def test_what_does_not_follow_is_observed(operator, parameters) -> None:
    graph, runner = chain((1, 2, 6, 5), (POINTWISE, [weight(3, 2, 1, 1)]), (operator, parameters)), RecordingRunner()
    calibrate(graph, [DATA], Needs(("s0", "s1")), CalibrationConfig(batch_size=1), runner)
    assert runner.outputs == ["s0", "s1"]


def test_historical_observes_everything() -> None:
    graph, runner = network(), RecordingRunner()
    names = [symbol.name for symbol in graph.operators]
    calibrate(graph, [DATA], Needs(tuple(names)), CalibrationConfig(method="historical"), runner)
    assert runner.outputs == names


def test_a_sum_that_overflows_is_named() -> None:
    large = np.full((3, 1, 1), 3e38, np.float32)
    graph = chain((1, 2, 6, 5), (POINTWISE, [np.ones((3, 2, 1, 1))]), (BroadcastAdd(), [large]))
    with pytest.raises(DataError, match="s1 .* holds infinity"):
        calibrate(graph, [np.full_like(DATA, 1e38)], Needs(("s0", "s1")), CalibrationConfig(), NumpyRunner())


@pytest.mark.filterwarnings("ignore:overflow")
def test_what_is_not_finite_in_a_channel_is_named_with_its_sample() -> None:
    graph = chain((1, 2, 6, 5), (BroadcastMul(), [np.float32([[[1e38]], [[1]]])]))
    data = DATA.clip(-1, 1)
    data[7, 0, 2, 2] = 1e30
    with pytest.raises(DataError, match=r"s0 .* holds inf in calibration sample 7"):
        calibrate(graph, [data], Needs(("s0",)), CalibrationConfig(batch_size=4), NumpyRunner())
