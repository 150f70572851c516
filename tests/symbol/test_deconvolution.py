"""Deconvolution against its definition, and inputs that reach its bounds at every position."""

from __future__ import annotations

import numpy as np
import pytest
from applied import Array, holds, infer, run
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mrt.errors import GraphError
from mrt.symbol import Interval, TensorType
from mrt.symbol.operators.deconvolution import Deconvolution


@st.composite
def deconvolutions(draw: st.DrawFn) -> tuple[Deconvolution, tuple[int, ...], tuple[int, ...]]:
    """An operator with the shapes of its data and weight."""
    rank = draw(st.integers(1, 3))

    def values(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank)))

    groups, inputs, outputs = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    operator = Deconvolution(
        kernel=values(1, 4),
        num_filter=groups * outputs,
        stride=values(1, 3),
        dilate=values(1, 2),
        pad=values(0, 2),
        adj=values(0, 2),
        num_group=groups,
    )
    data = (draw(st.integers(1, 2)), groups * inputs, *values(1, 5))
    assume(min(operator.output_spatial(data[2:])) >= 1)
    return operator, data, (data[1], outputs, *operator.kernel)


def _naive(operator: Deconvolution, x: Array, weight: Array) -> Array:
    """The definition by loops over Python ints: every element times every tap, laid where it belongs."""
    rank = x.ndim - 2
    stride, dilate = operator.window(rank)
    pad, _ = operator.border(x.shape[2:])
    result = np.zeros((x.shape[0], operator.num_filter, *operator.output_spatial(x.shape[2:])), object)
    per_group, inputs = weight.shape[1], weight.shape[0] // operator.num_group
    for sample, channel, *place in np.ndindex(*x.shape):
        for output, *tap in np.ndindex(*weight.shape[1:]):
            at = [q * s + k * d - p for q, s, k, d, p in zip(place, stride, tap, dilate, pad, strict=True)]
            if all(0 <= a < n for a, n in zip(at, result.shape[2:], strict=True)):
                term = int(x[(sample, channel, *place)]) * int(weight[(channel, output, *tap)])
                result[(sample, channel // inputs * per_group + output, *at)] += term
    return result


@given(deconvolutions(), st.sampled_from([7, 2**7, 2**15, 2**31 - 1]), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_integers_follow_the_definition(
    case: tuple[Deconvolution, tuple[int, ...], tuple[int, ...]], largest: int, seed: int
) -> None:
    operator, data_shape, weight_shape = case
    rng = np.random.default_rng(seed)
    x, weight = (rng.integers(-largest, largest, shape, endpoint=True) for shape in (data_shape, weight_shape))
    result = operator.evaluate(x.astype(np.int32), weight.astype(np.int32))
    np.testing.assert_array_equal(result.astype(object), _naive(operator, x, weight))


@given(deconvolutions(), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_bounds_are_attained_at_some_position_of_every_output_channel(
    case: tuple[Deconvolution, tuple[int, ...], tuple[int, ...]], seed: int
) -> None:
    """With data between lo and hi everywhere, an output is largest where positive taps meet hi and negative ones lo."""
    operator, data_shape, weight_shape = case
    rng = np.random.default_rng(seed)
    weight = rng.integers(-9, 9, weight_shape, endpoint=True)
    ends = np.sort(rng.integers(-9, 9, (2, data_shape[1]), endpoint=True), axis=0)
    lo, hi = (bound.reshape(1, -1, *(1,) * (len(data_shape) - 2)) for bound in ends)
    bounds = operator.bounds(Interval(lo, hi, data_shape), Interval.constant(weight))
    low, high = (np.broadcast_to(bound, data_shape) for bound in (lo, hi))
    positive, negative = np.maximum(weight, 0), np.minimum(weight, 0)
    most = _naive(operator, high, positive) + _naive(operator, low, negative)
    least = _naive(operator, low, positive) + _naive(operator, high, negative)
    axes = (0, *range(2, len(data_shape)))
    np.testing.assert_array_equal(bounds.hi.reshape(-1), most.max(axis=axes))
    np.testing.assert_array_equal(bounds.lo.reshape(-1), least.min(axis=axes))


@given(deconvolutions(), st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_weights_as_a_convolution_has_them(
    case: tuple[Deconvolution, tuple[int, ...], tuple[int, ...]], seed: int
) -> None:
    operator, _, weight_shape = case
    weight = np.random.default_rng(seed).integers(-9, 9, weight_shape)
    rows = operator.rows(weight)
    per_group, inputs = weight_shape[1], weight_shape[0] // operator.num_group
    for output in range(operator.num_filter):
        group = output // per_group
        np.testing.assert_array_equal(
            rows[output], weight[group * inputs : (group + 1) * inputs, output - group * per_group]
        )
    np.testing.assert_array_equal(operator.from_rows(rows), weight)


def test_partial_sums_in_any_order_are_held() -> None:
    operator = Deconvolution(kernel=(2,), num_filter=1, no_bias=False)
    weight, bias = np.array([[[5, -7]]]), np.array([-4])
    (partial,) = operator.intermediates(
        Interval.of(2, 3, (1, 1, 4)), Interval.constant(weight), Interval.constant(bias)
    )
    assert (partial.min, partial.max) == (-25, 15)


def test_an_image_that_is_large_gives_the_bounds_of_a_small_one() -> None:
    weight = np.random.default_rng(0).integers(-9, 9, (2, 3, 5, 4))
    operator = Deconvolution(kernel=(5, 4), num_filter=3, stride=(2, 3), pad=(1, 2))
    small, large = (operator.bounds(Interval.of(-3, 8, (1, 2, n, n)), Interval.constant(weight)) for n in (9, 100_000))
    np.testing.assert_array_equal(small.lo, large.lo)
    np.testing.assert_array_equal(small.hi, large.hi)


def test_bounds_hold_where_the_weight_is_not_constant() -> None:
    operator = Deconvolution(kernel=(3,), num_filter=1, stride=(2,))
    bounds = operator.bounds(Interval.of(-1, 2, (1, 2, 3)), Interval.of(-2, 1, (2, 1, 3)))
    assert (bounds.min, bounds.max) == (-16, 8)
    assert holds(bounds, operator.evaluate(np.full((1, 2, 3), 2), np.full((2, 1, 3), -2)))


def test_infinite_floats_leave_no_nan_and_keep_the_sign() -> None:
    operator = Deconvolution(kernel=(2,), num_filter=2, stride=(2,))
    weight = Interval.constant(np.array([[[0.0, 1.0], [2.0, 0.0]]]))
    bounds = operator.bounds(Interval.of(0.0, np.inf, (1, 1, 3)), weight)
    assert bounds.min == 0 and bounds.max == np.inf


@pytest.mark.parametrize(
    ("operator", "types", "message"),
    [
        (Deconvolution((3, 3), 4, no_bias=False), [(1, 3, 8, 8), (3, 4, 3, 3)], "bias is missing"),
        (Deconvolution((3, 3), 4), [(1, 3, 8, 8), (3, 4, 3, 3), (4,)], "bias is given"),
        (Deconvolution((3, 3), 4), [(1, 3, 8, 8), (4, 3, 3, 3)], r"\(3, 4, 3, 3\) is needed"),
        (Deconvolution((3, 3), 4), [(1, 3, 8), (3, 4, 3, 3)], "rank 4 is needed"),
        (Deconvolution((3, 3), 4, num_group=2), [(1, 3, 8, 8), (3, 2, 3, 3)], "does not divide 3 channels"),
        (Deconvolution((3, 3), 4, pad=(5, 0)), [(1, 3, 8, 8), (3, 4, 3, 3)], "lower pad"),
        (Deconvolution((3, 3), 4, target_shape=(11, 9)), [(1, 3, 8, 8), (3, 4, 3, 3)], "target_shape is"),
        (Deconvolution((3, 3), 4, layout="NHWC"), [(1, 3, 8, 8), (3, 4, 3, 3)], "NCHW is needed"),
    ],
)
def test_inputs_that_do_not_fit_are_named(operator: Deconvolution, types: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(GraphError, match=rf"^y \(Deconvolution\): .*{message}"):
        infer(operator, *map(TensorType, types))


def test_an_overflow_of_int32_is_an_error_and_no_wrap() -> None:
    x, weight = np.full((1, 3, 1), 2**15, np.int32), np.full((3, 1, 1), 2**15, np.int32)
    with pytest.raises(GraphError, match="overflows int32"):
        run(Deconvolution(kernel=(1,), num_filter=1), x, weight)
