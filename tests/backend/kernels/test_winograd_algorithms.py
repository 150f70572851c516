"""Winograd's algorithms are exact: their matrices, what int16 holds of them, and which data and weights they serve."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrt.backend.kernels.generic.winograd_algorithms import (
    ALGORITHMS,
    F2,
    F2_OF_STRIDE_2,
    F4,
    F4_OF_STRIDE_2,
    Algorithm,
    TapSums,
)
from mrt.backend.kernels.generic.winograd_transforms import LINES
from mrt.backend.tir.expressions import constant
from mrt.symbol import Array

BYTES = (0, 255), (-128, 127)
WORDS = (0, 2**13 - 1), (-(2**13) + 1, 2**13 - 1)
"""Those that tiles of 2 x 2 results serve, without a sign and with one."""
CASES = [(each, ends) for each in (F4, F4_OF_STRIDE_2) for ends in BYTES]
CASES += [(each, ends) for each in (F2, F2_OF_STRIDE_2) for ends in (*BYTES, *WORDS)]
"""Algorithms and the ends of data for which they are exact."""
FACTORS = {F4: 576, F2: 4, F4_OF_STRIDE_2: 36, F2_OF_STRIDE_2: 1}
"""Of the results, in what the matrices give."""


def correlated(window: Array, taps: Array, stride: int) -> list[list[int]]:
    """The results of a window, in Python's integers."""
    at = range(0, len(window) - 2, stride)
    return [
        [sum(int(window[y + i, x + j]) * int(taps[i, j]) for i in range(3) for j in range(3)) for x in at] for y in at
    ]


@given(st.data())
def test_the_matrices_give_a_multiple_of_the_results(data: st.DataObject) -> None:
    algorithm, (lo, hi) = data.draw(st.sampled_from(CASES))
    count = algorithm.window**2
    numbers = st.lists(st.one_of(st.sampled_from([lo, hi]), st.integers(lo, hi)), min_size=count, max_size=count)
    window = np.array(data.draw(numbers), object).reshape(algorithm.window, algorithm.window)
    taps = np.array(data.draw(st.lists(st.integers(-128, 127), min_size=9, max_size=9)), object).reshape(3, 3)
    matrices = algorithm.of_data, algorithm.of_taps, algorithm.of_results
    d, g, a = (np.array(matrix, object) for matrix in matrices)
    made = a @ ((g @ taps @ g.T) * (d @ window @ d.T)) @ a.T
    factor = FACTORS[algorithm]
    assert made.tolist() == (factor * np.array(correlated(window, taps, algorithm.stride), object)).tolist()
    assert algorithm.multiple == factor and factor * algorithm.inverse % 2**32 == 2**algorithm.shift


@pytest.mark.parametrize(("algorithm", "ends"), CASES)
def test_transformed_data_and_taps_fit_int16_whatever_they_are(algorithm: Algorithm, ends: tuple[int, int]) -> None:
    """By all signs of the matrices' elements: what is added up before the last step, too."""
    for matrix, (lo, hi) in [(algorithm.of_data, ends), (algorithm.of_taps, BYTES[1])]:
        lines = np.array(matrix)
        both = np.einsum("pi,qj->pqij", lines, lines).reshape(algorithm.points, -1)
        most = np.where(both > 0, both * hi, both * lo).sum(axis=1).max()
        least = np.where(both > 0, both * lo, both * hi).sum(axis=1).min()
        assert -(2**15) <= least <= most < 2**15
    taps = np.random.default_rng(0).choice(np.array([-128, 127], np.int8), (64, 8, 3, 3))
    g = np.array(algorithm.of_taps)
    expected = np.einsum("pi,qj,ocij->pqoc", g, g, taps.astype(np.int64)).reshape(algorithm.points, 64, 8)
    np.testing.assert_array_equal(algorithm.transformed_taps(taps.transpose(2, 3, 0, 1)), expected)


@pytest.mark.parametrize(
    ("algorithm", "ends", "fits"),
    [
        (F4, (0, 255), True),
        (F4, (-128, 127), True),
        (F4, (0, 511), False),
        (F2, (0, 8191), True),
        (F2, (0, 8192), False),
        (F2, (-8191, 8191), True),
        (F2, (-8192, 8192), False),
        (F2, (1, 8191), True),
        (F2, (8000, 8192), False),
        (F4_OF_STRIDE_2, (0, 255), True),
        (F4_OF_STRIDE_2, (0, 1820), True),
        (F4_OF_STRIDE_2, (0, 1821), False),
        (F2_OF_STRIDE_2, (0, 16383), True),
        (F2_OF_STRIDE_2, (0, 16384), False),
        (F2_OF_STRIDE_2, (-8191, 8191), True),
        (F2_OF_STRIDE_2, (-8192, 8192), False),
    ],
)
def test_which_data_are_served(algorithm: Algorithm, ends: tuple[int, int], fits: bool) -> None:
    """What of a window lies on a border is 0."""
    assert algorithm.serves(TapSums.of(np.ones((1, 16, 3, 3), np.int8)), *ends) is fits


def test_sums_next_to_a_border_count() -> None:
    """Where data are far from 0, taps of the other sign make less of a sum, but for those that see the border."""
    weight, (lo, hi) = np.zeros(112 * 9, np.int8), (8000, 8191)
    weight[:552], weight[552:712] = 127, -128
    assert hi * 552 * 127 - lo * 160 * 128 <= F2.reach < hi * 552 * 127
    assert not F2.serves(TapSums.of(weight.reshape(1, 112, 3, 3)), lo, hi)
    assert F2.serves(TapSums.of(weight.reshape(1, 112, 3, 3) // 2), lo, hi)


@pytest.mark.parametrize("algorithm", ALGORITHMS.values())
def test_what_is_written_out_is_the_matrix(algorithm: Algorithm) -> None:
    for matrix, lines in zip((algorithm.of_data, algorithm.of_results), LINES[algorithm.side], strict=True):
        for column in np.random.default_rng(0).integers(-1000, 1000, (20, len(matrix[0]))):
            made = lines([constant(int(n), "int32") for n in column], lambda value: value)
            assert [int(value) for value in made] == (np.array(matrix) @ column).tolist()


@pytest.mark.parametrize("algorithm", ALGORITHMS.values())
@pytest.mark.parametrize("sign", [1, -1])
def test_a_result_is_found_again_modulo_two_to_the_32(algorithm: Algorithm, sign: int) -> None:
    factor = FACTORS[algorithm]
    for y in (0, 1, algorithm.reach, 12345678):
        held = np.array([factor * sign * y % 2**32], np.uint32) * np.array([algorithm.inverse], np.uint32)
        assert (held.view(np.int32) >> algorithm.shift).tolist() == [sign * y]


def test_larger_sums_are_left_to_direct_ones() -> None:
    """112 channels of the largest products are the most that fit."""
    for channels, fits in ((112, True), (128, False)):
        for value in (127, -128):
            assert F4.serves(TapSums.of(np.full((1, channels, 3, 3), value, np.int8)), 0, 255) is fits
    mixed = np.tile(np.array([127, -128], np.int8), 9 * 64).reshape(1, 128, 3, 3)
    assert F4.serves(TapSums.of(mixed), 0, 255)
    assert not F4.serves(TapSums.of(np.full((1, 256, 3, 3), 127, np.int8)), -128, 127)
    assert F2.serves(TapSums.of(np.full((1, 56, 3, 3), 127, np.int8)), 0, 8191)
    assert not F2.serves(TapSums.of(np.full((1, 64, 3, 3), 127, np.int8)), 0, 8191)


def test_bytes_of_words_are_served_like_bytes() -> None:
    for channels, fits in ((112, True), (128, False)):
        assert F4.serves_bytes(TapSums.of(np.full((1, channels, 3, 3), 127, np.int8)), 0, 4095) is fits
    assert F4.serves_bytes(TapSums.of(np.ones((1, 16, 3, 3), np.int8)), -(2**15), 2**15 - 1)
    assert not F4.serves_bytes(TapSums.of(np.ones((1, 16, 3, 3), np.int8)), 0, 2**17)
