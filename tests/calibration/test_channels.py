"""The observer of channels sees what NumPy sees in each of them, whatever the order and the parts."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrt.calibration import CalibrationConfig, Needs, calibrate
from mrt.calibration.channels import ChannelObserver, by_channel
from mrt.symbol import Array, Graph, NumpyRunner
from mrt.symbol.operators.activation import Relu
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.transform import Reshape
from tests.quantization.networks import chain

RANDOM = np.random.default_rng(11)
SAMPLES = (RANDOM.standard_t(2, (12, 5, 40)) * RANDOM.uniform(0.1, 3, (12, 5, 1))).astype(np.float32)


def state(observer: ChannelObserver) -> tuple[bytes, ...]:
    return observer.lo.tobytes(), observer.hi.tobytes(), observer.reach.tobytes(), bytes(str(observer.count), "ascii")


@pytest.mark.parametrize("lambda_", [None, 2.0])
@given(cuts=st.lists(st.integers(0, 12), max_size=4), seed=st.integers(0, 20))
def test_state_does_not_depend_on_the_parts(lambda_: float | None, cuts: list[int], seed: int) -> None:
    whole = ChannelObserver.of(5, lambda_).observe(SAMPLES)
    order = np.random.default_rng(seed).permutation(12)
    parts = [SAMPLES[order][a:b] for a, b in pairwise([0, *sorted(cuts), 12])]
    streamed = merged = ChannelObserver.of(5, lambda_)
    for part in parts:
        streamed = streamed.observe(part)
        merged = ChannelObserver.of(5, lambda_).observe(part).merge(merged)
    assert state(streamed) == state(merged) == state(whole)


def test_max_is_the_range_of_each_channel() -> None:
    observer = ChannelObserver.of(5).observe(SAMPLES)
    assert observer.count == 12 * 40
    found = observer.ranges()
    assert found == tuple((float(c.min()), float(c.max())) for c in np.moveaxis(SAMPLES, 1, 0))


@given(
    st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 90)),
    st.integers(0, 3),
    st.permutations(range(3)),
    st.sampled_from([None, np.nan, np.inf]),
)
def test_max_does_not_depend_on_how_samples_lie(
    shape: tuple[int, int, int], padding: int, order: list[int], odd: float | None
) -> None:
    """Channels innermost in memory, with or without padding behind them, or anything else."""
    lengths = [shape[axis] for axis in order]
    held = np.full((*lengths[:2], lengths[2] + padding), -1e9, np.float32)
    samples = held[..., : lengths[2]].transpose(np.argsort(order))
    samples[...] = np.random.default_rng(shape).standard_normal(shape)
    if odd is not None:
        samples[-1, -1, -1] = odd
    observer = ChannelObserver.of(shape[1]).observe(samples)
    assert observer.is_finite == (odd is None)
    for channel, values in enumerate(np.moveaxis(samples, 1, 0)[: shape[1] - (odd is not None)]):
        each = values.ravel().tolist()
        assert (observer.lo[channel], observer.hi[channel]) == (min(each), max(each))


@pytest.mark.parametrize("lambda_", [0.5, 3.0, 16.0])
def test_historical_is_cut_to_the_largest_reach_of_any_sample_of_the_channel(lambda_: float) -> None:
    """|mean| + lambda deviations, or the largest magnitude where that is no clear cut, sample by sample."""
    values = SAMPLES.astype(np.float64)
    largest = np.abs(values).max(axis=2)
    spread = np.abs(values.mean(axis=2)) + lambda_ * values.std(axis=2)
    reach = np.where(spread < 0.95 * largest, spread, largest).max(axis=0)
    expected = np.stack([np.maximum(values.min(axis=(0, 2)), -reach), np.minimum(values.max(axis=(0, 2)), reach)], 1)
    found = ChannelObserver.of(5, lambda_).observe(SAMPLES).ranges()
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_before_any_observation_every_range_is_zero() -> None:
    assert ChannelObserver.of(3).ranges() == ((0.0, 0.0),) * 3
    assert ChannelObserver.of(3).observe(np.zeros((0, 3, 4))).ranges() == ((0.0, 0.0),) * 3


def test_zeros_are_one() -> None:
    found = ChannelObserver.of(1).observe(np.array([[[-0.0, 0.0]]], np.float32))
    assert str(found.ranges()) == "((0.0, 0.0),)"


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_samples_are_split_along_any_axis(axis: int) -> None:
    values = RANDOM.standard_normal((7, 2, 3, 4))
    split = by_channel(values, axis)
    for channel in range((2, 3, 4)[axis]):
        assert sorted(split[:, channel].reshape(-1)) == sorted(values.take(channel, axis + 1).reshape(-1))


def network() -> Graph:
    weight = RANDOM.standard_normal((3, 2, 1, 1)).astype(np.float32)
    last = RANDOM.standard_normal((2, 5)).astype(np.float32)
    return chain(
        (1, 2, 4, 5),
        (Convolution((1, 1), 3, no_bias=True), [weight]),
        (Relu(), []),
        (FullyConnected(2, flatten=False, no_bias=True), [last]),
    )


@pytest.mark.parametrize("method", ["max", "historical", "percentile", "mse"])
def test_calibration_finds_the_same_channels_for_any_batches(method: str) -> None:
    """Along the axis that the next layer sums over; of tensors, and never wider than these are if taken whole."""
    graph, data = network(), RANDOM.standard_normal((13, 2, 4, 5)).astype(np.float32)
    config = CalibrationConfig.model_validate({"method": method, "lambda": 2.0})
    found = []
    for size, batch in ((13, 16), (4, 16), (1, 3)):
        batches = [data[first : first + size] for first in range(0, 13, size)]
        settings = config.model_copy(update={"batch_size": batch})
        found.append(calibrate(graph, batches, Needs(("x", "s0", "s1", "s2")), settings, NumpyRunner()).ranges)
    assert found[0] == found[1] == found[2]
    ranges = found[0]
    assert [len(ranges[name].channels) for name in ("x", "s0", "s1", "s2")] == [0, 5, 5, 3]
    values: dict[str, list[Array]] = {}
    for sample in data:
        for symbol, value in graph.walk({"x": sample[None]}):
            values.setdefault(symbol.name, []).append(value)
    for name in ("s0", "s1") if method == "max" else ():
        all_values = np.concatenate(values[name])
        ends = np.stack([all_values.min(axis=(0, 1, 2)), all_values.max(axis=(0, 1, 2))], 1)
        np.testing.assert_allclose(ranges[name].channels, ends, rtol=1e-6)
        assert min(lo for lo, _ in ranges[name].channels) == ranges[name].lo
        assert max(hi for _, hi in ranges[name].channels) == ranges[name].hi


def test_a_tensor_whose_batch_is_baked_in_has_no_channels() -> None:
    """Its samples cannot be told from its channels."""
    graph = chain((2, 3, 4), (Relu(), []), (Reshape((1, 6, 4)), []))
    data: list[Array] = [RANDOM.standard_normal((2, 3, 4)).astype(np.float32)]
    found = calibrate(graph, data, Needs(("s0", "s1")), CalibrationConfig(), NumpyRunner()).ranges
    assert len(found["s0"].channels) == 3
    assert found["s1"].hi == float(np.maximum(data[0], 0).max())
