"""Observers see what NumPy sees, whatever the order and the parts."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrt.algorithm_registry import find_algorithm
from mrt.calibration import CalibrationConfig, Range
from mrt.calibration.observers import HistoricalObserver, MeanObserver, RangeObserver
from mrt.calibration.range_method import RangeMethod
from mrt.calibration.ranges import range_of

OBSERVERS = [RangeObserver(), HistoricalObserver(lambda_=2.0)]


def _reach(sample: np.ndarray, lambda_: float) -> float:
    """MRT's threshold of one observation, in float64."""
    values = sample.astype(np.float64)
    largest = np.abs(values).max()
    spread = abs(values.mean()) + lambda_ * values.std()
    return float(spread) if spread < 0.95 * largest else float(largest)


@pytest.mark.parametrize("observer", OBSERVERS, ids=["range", "historical"])
@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, 12), max_size=4), seed=st.integers(0, 100))
def test_state_does_not_depend_on_the_parts(observer, cuts, seed) -> None:
    random = np.random.default_rng(seed)
    samples = random.standard_t(2, size=(12, 1000)).astype(np.float32)
    whole = observer.observe(samples)
    bounds = [0, *sorted(cuts), 12]
    parts = [samples[a:b] for a, b in pairwise(bounds)]
    streamed, merged = observer, observer
    for part in parts:
        streamed = streamed.observe(part)
    for part in random.permutation(len(parts)):
        merged = merged.merge(observer.observe(parts[part]))
    assert whole == streamed == merged


def test_range_is_exact() -> None:
    samples = np.random.default_rng(0).normal(size=(5, 300)).astype(np.float32)
    seen = RangeObserver().observe(samples)
    assert (seen.lo, seen.hi) == (float(samples.min()), float(samples.max()))


def test_zeros_are_one() -> None:
    a = RangeObserver().observe(np.array([[-0.0, 0.0]], np.float32))
    b = RangeObserver().observe(np.array([[0.0, -0.0]], np.float32))
    assert str(a) == str(b) == str(RangeObserver(0.0, 0.0))


@pytest.mark.parametrize("lambda_", [0.5, 3.0, 16.0])
def test_historical_is_the_largest_reach_of_a_sample(lambda_: float) -> None:
    random = np.random.default_rng(0)
    samples = (random.standard_t(2, size=(6, 500)) * random.uniform(0.1, 3, size=(6, 1)) + 0.3).astype(np.float32)
    observer = HistoricalObserver(lambda_).observe(samples)
    reach = max(_reach(sample, lambda_) for sample in samples)
    assert observer.reach == pytest.approx(reach, rel=1e-12)
    lo, hi = float(samples.min()), float(samples.max())
    assert range_of(observer) == Range(max(lo, -observer.reach), min(hi, observer.reach))


def test_historical_cuts_an_outlier_only_if_clearly_beyond() -> None:
    sample = np.zeros((1, 10_000), np.float32)
    sample[0, 0] = 100.0
    assert range_of(HistoricalObserver(3.0).observe(sample)).hi < 10
    even = np.tile(np.array([[-1, 1]], np.float32), (1, 50))
    assert range_of(HistoricalObserver(0.96).observe(even)) == Range(-1.0, 1.0)


@pytest.mark.parametrize("value", [0.0, -3.5, 1e30, 1e-42])
def test_constant_tensor(value: float) -> None:
    samples = np.full((3, 7), value, np.float32)
    exact = float(np.float32(value))
    for observer in OBSERVERS:
        assert range_of(observer.observe(samples)) == Range(exact, exact)


def test_nothing_observed() -> None:
    for method in ("max", "historical"):
        observer = (
            find_algorithm(RangeMethod, method).observer(CalibrationConfig()).observe(np.zeros((2, 0), np.float32))
        )
        assert range_of(observer) == Range(0.0, 0.0)


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(0, 15), max_size=4), seed=st.integers(0, 100), spread=st.sampled_from([0, 8, 60]))
def test_a_mean_is_exact_whatever_the_parts_and_their_order(cuts, seed, spread) -> None:
    """Of one element a sample, so that Fractions tell the exact sum; magnitudes differ by up to 2^120."""
    random = np.random.default_rng(seed)
    samples = (random.standard_normal((15, 3)) * 2.0 ** random.integers(-spread, spread + 1, (15, 3))).astype(
        np.float32
    )
    exact = [float(sum(map(Fraction, column))) / 15 for column in samples.T.tolist()]
    observer = MeanObserver.along((1, 3), 1)
    bounds = [0, *sorted(cuts), 15]
    streamed, merged = observer, observer
    for a, b in pairwise(bounds):
        streamed = streamed.observe(samples[a:b])
    for part in random.permutation(len(bounds) - 1):
        merged = merged.merge(observer.observe(samples[bounds[part] : bounds[part + 1]]))
    assert list(observer.observe(samples).mean) == list(streamed.mean) == list(merged.mean) == exact
    assert observer.observe(random.permutation(samples)).mean == streamed.mean


@pytest.mark.parametrize(("shape", "axis"), [((4, 3, 5, 2), 1), ((4, 5, 3), 2), ((4, 3), 1)])
def test_a_mean_is_of_each_channel(shape: tuple[int, ...], axis: int) -> None:
    samples = np.random.default_rng(1).normal(size=shape)
    others = tuple(k for k in range(len(shape)) if k != axis)
    for power in (1, 2):
        seen = MeanObserver.along(shape, axis, power).observe(samples.reshape(4, -1))
        np.testing.assert_allclose(seen.mean, (samples**power).mean(axis=others), rtol=1e-13)


def test_a_mean_of_nothing_is_zero() -> None:
    assert MeanObserver.along((1, 2), 1).observe(np.zeros((0, 2))).mean == (0.0, 0.0)
