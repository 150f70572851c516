"""The backend's convolution of slices: what it means, and the bounds of its sums."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from mrt.backend.operators.sliced_convolution import SlicedConvolution
from mrt.errors import GraphError
from mrt.symbol import Interval, TensorType
from mrt.symbol.operators.convolution import Convolution

OPERATOR = SlicedConvolution(kernel=(2,), num_filter=3, no_bias=True, width=4)
"""Of 10 channels: slices of 4, 4 and 2."""


def test_it_is_the_sum_of_the_slices_times_their_factors() -> None:
    random = np.random.default_rng(0)
    x, weight = random.integers(-128, 128, (2, 10, 5)), random.integers(-128, 128, (3, 10, 2))
    factors = random.integers(1, 257, (3, 3))
    expected = np.zeros((2, 3, 4), object)
    for n, o, p, c, k in product(range(2), range(3), range(4), range(10), range(2)):
        expected[n, o, p] += int(factors[c // 4, o]) * int(weight[o, c, k]) * int(x[n, c, p + k])
    np.testing.assert_array_equal(OPERATOR.evaluate(x, weight, factors), expected)


def test_bounds_are_those_of_the_folded_weight() -> None:
    random = np.random.default_rng(1)
    weight, factors = random.integers(-128, 128, (3, 10, 2)), random.integers(1, 257, (3, 3))
    x = Interval.of(-3, 7, (1, 10, 5))
    folded = np.array([[weight[o, c] * factors[c // 4, o] for c in range(10)] for o in range(3)])
    plain = Convolution(kernel=(2,), num_filter=3, no_bias=True)
    given = (x, Interval.constant(weight), Interval.constant(factors))
    for mine, expected in [
        (OPERATOR.bounds(*given), plain.bounds(x, Interval.constant(folded))),
        (OPERATOR.intermediates(*given)[0], plain.intermediates(x, Interval.constant(folded))[0]),
    ]:
        np.testing.assert_array_equal(mine.lo, expected.lo)
        np.testing.assert_array_equal(mine.hi, expected.hi)


@pytest.mark.parametrize("shape", [(2, 3), (3, 4), (3,)])
def test_every_slice_and_output_channel_has_a_factor(shape: tuple[int, ...]) -> None:
    x, weight = TensorType((1, 10, 5), "uint8"), TensorType((3, 10, 2), "int8")
    assert OPERATOR.infer(x, weight, TensorType((3, 3), "int16")).shape == (1, 3, 4)
    with pytest.raises(GraphError, match=r"factors .* shape \(3, 3\) is needed"):
        OPERATOR.infer(x, weight, TensorType(shape, "int16"))
