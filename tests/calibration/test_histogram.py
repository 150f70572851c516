"""Histograms count what NumPy counts; ranges taken from them are those that sorting and trying would find."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrt.algorithm_registry import find_algorithm
from mrt.calibration import CalibrationConfig, Range
from mrt.calibration.histogram import HALF, Histogram, HistogramObserver
from mrt.calibration.range_method import RangeMethod
from mrt.calibration.ranges import range_of
from mrt.quantization.algorithms.least_error_range import LeastError
from mrt.quantization.algorithms.percentile_range import Percentile

RANDOM = np.random.default_rng(5)


def _same(a: Histogram, b: Histogram) -> bool:
    return a.exponent == b.exponent and np.array_equal(a.counts, b.counts)


@settings(max_examples=40, deadline=None)
@given(cuts=st.lists(st.integers(0, 12), max_size=4), spread=st.integers(0, 60), seed=st.integers(0, 100))
def test_counts_do_not_depend_on_the_parts(cuts, spread, seed) -> None:
    """Not even where magnitudes differ by 2^60, so that parts are counted in bins of very different widths."""
    random = np.random.default_rng(seed)
    samples = random.standard_t(2, size=(12, 50)) * 2.0 ** random.integers(-spread, 1, size=(12, 1))
    samples[random.integers(0, 12)] = 0
    samples = samples.astype(np.float32)
    parts = [samples[a:b] for a, b in pairwise([0, *sorted(cuts), 12])]
    streamed, merged = HistogramObserver(Percentile(90)), HistogramObserver(Percentile(90))
    for part in parts:
        streamed = streamed.observe(part)
    for place in random.permutation(len(parts)):
        merged = merged.merge(HistogramObserver(Percentile(90)).observe(parts[place]))
    whole = Histogram.of(samples)
    assert _same(whole, streamed.seen) and _same(whole, merged.seen)
    assert streamed.range == merged.range
    assert streamed.covered == merged.covered


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bins_are_those_of_numpy(dtype) -> None:
    values = np.append(RANDOM.normal(size=150_000), [0.0, -0.0, 1e-30, -1e-30, 4.75]).astype(dtype)
    seen = Histogram.of(values)
    edges = np.arange(-HALF, HALF + 1) * seen.width
    assert np.array_equal(seen.counts, np.histogram(values.astype(np.float64), edges)[0])
    assert edges[-1] / 2 <= np.abs(values).max() < edges[-1]


@pytest.mark.parametrize("value", [1.0, -1.0, 2.0**-140, -(2.0**127), np.finfo(np.float32).max])
def test_a_power_of_two_has_room(value: float) -> None:
    seen = Histogram.of(np.array([value], np.float32))
    place = int(np.flatnonzero(seen.counts)[0]) - HALF
    assert place * seen.width <= float(value) < (place + 1) * seen.width


@pytest.mark.parametrize("percent", [50.0, 90.0, 99.0, 99.9, 100.0])
@pytest.mark.parametrize("positive", [False, True])
def test_percentile_leaves_out_no_more_than_asked(percent: float, positive: bool) -> None:
    values = RANDOM.standard_t(3, size=(4, 5000)).astype(np.float32)
    values = np.maximum(values, 0) if positive else values
    observer = HistogramObserver(Percentile(percent)).observe(values)
    (lo, hi), width = observer.covered, observer.seen.width
    allowed = values.size * (100 - percent) / 200
    assert np.count_nonzero(values < lo) <= allowed and np.count_nonzero(values > hi) <= allowed
    if percent < 100 and not positive:  # One bin more would have been too many.
        assert np.count_nonzero(values < lo + width) > allowed and np.count_nonzero(values >= hi - width) > allowed
    if percent == 100:
        assert (lo, hi) == (values.min(), values.max())


@pytest.mark.parametrize("bits", [3, 4, 6, 8])
@pytest.mark.parametrize("positive", [False, True])
def test_least_error_is_that_of_quantizing(bits: int, positive: bool) -> None:
    """Of quantizers for all reaches, tried on the values, none is better than the range's by more than 2 %."""
    values = RANDOM.standard_t(3, size=60_000).astype(np.float32)
    values = np.maximum(values, 0) if positive else values

    def error(lo: float, hi: float) -> float:
        step = (hi - lo) / (2**bits - 1)
        given = np.round((np.clip(values.astype(np.float64), lo, hi) - lo) / step) * step + lo
        return float(np.square(given - values).mean())

    lo, hi = HistogramObserver(LeastError(bits)).observe(values[None]).covered
    reaches = np.linspace(0, np.abs(values).max(), 300)[1:]
    best = min(error(max(-reach, values.min()), min(reach, values.max())) for reach in reaches)
    assert error(lo, hi) <= 1.02 * best
    assert bits > 6 or hi < values.max()


def test_few_bits_cover_less() -> None:
    values = RANDOM.normal(size=(1, 20_000)).astype(np.float32)
    reaches = [HistogramObserver(LeastError(bits)).observe(values).covered[1] for bits in (2, 4, 8, 16)]
    assert reaches == sorted(reaches) and reaches[0] < 2.5 and reaches[-1] == values.max()


@pytest.mark.parametrize("method", ["percentile", "mse"])
def test_tensors_of_one_value(method: str) -> None:
    unobserved = find_algorithm(RangeMethod, method).observer(CalibrationConfig())
    assert range_of(unobserved) == Range(0.0, 0.0)
    for value in (0.0, 3.0, -1e30, 2.0**-149):
        covered = range_of(unobserved.observe(np.full((2, 9), value, np.float32)))
        assert covered.lo <= covered.hi
        assert (covered.lo, covered.hi) == pytest.approx((value, value), rel=1e-3)
