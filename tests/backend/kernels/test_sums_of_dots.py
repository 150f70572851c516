"""Sums of dots, for the shapes that layouts and tiles find awkward."""

from __future__ import annotations

import numpy as np
import pytest
from layers import BYTES, DTYPES, Layers, in_turn, kernel_texts

from mrt.backend.kernels.dot_instructions import Dot
from mrt.backend.kernels.generic.narrow_groups import merged_groups
from mrt.symbol import Runner


def test_convolutions(runner: Runner, turn: int) -> None:
    """Every other shape on each CPU."""
    layers = Layers()
    shapes = [
        ((3, 3, 9, 11), 7, (3, 3), {}),
        ((1, 17, 7, 5), 33, (1, 1), {}),
        ((2, 16, 13, 13), 16, (2, 3), {"stride": (3, 2)}),
        ((1, 5, 9, 9), 20, (1, 1), {"stride": (2, 3)}),
        ((1, 18, 9, 23), 48, (3, 3), {"dilate": (2, 1), "pad": (2, 1)}),
        ((1, 32, 1, 1), 40, (1, 1), {}),
        ((1, 64, 4, 4), 32, (4, 4), {}),
        ((1, 32, 6, 6), 64, (3, 3), {"num_group": 2}),
        ((1, 12, 6, 6), 24, (3, 3), {"num_group": 4}),
        ((2, 4, 19), 9, (5,), {"stride": (2,)}),
        ((1, 3, 4, 5, 6), 18, (2, 3, 2), {}),
        ((1, 16, 5, 5), 1, (1, 1), {}),
        ((1, 1, 7, 6), 1, (3, 3), {}),
    ][turn % 2 :: 2]
    for (shape, filters, kernel, attributes), dtype in zip(shapes, in_turn(BYTES, turn // 2), strict=False):
        first = layers.requantized(layers.input(layers.integers(shape, "int16", -200, 200)), dtype)
        layers.finish(layers.requantized(layers.convolution(first, filters, kernel, **attributes)))
    layers.check(runner=runner)


NARROW_GROUPS = [
    ((1, 32, 7, 7), 32, (3, 3), {"num_group": 8, "pad": (1, 1)}),
    ((2, 64, 5, 5), 64, (3, 3), {"num_group": 8, "pad": (1, 1), "stride": (2, 2)}),
    ((1, 48, 6, 6), 48, (3, 3), {"num_group": 4}),
    ((1, 60, 5, 4), 60, (1, 1), {"num_group": 3}),
    ((1, 10, 6, 6), 14, (3, 3), {"num_group": 2, "dilate": (2, 2)}),
    ((1, 16, 6, 7), 32, (3, 3), {"num_group": 16, "pad": (1, 1)}),
    ((1, 40, 6, 6), 40, (3, 3), {"num_group": 5, "pad": (1, 1)}),
    ((2, 104, 4, 4), 104, (3, 3), {"num_group": 13, "pad": (1, 1)}),
    ((1, 20, 5, 5), 60, (3, 3), {"num_group": 5}),
    ((1, 120, 5, 5), 120, (3, 3), {"num_group": 5, "pad": (1, 1)}),
    ((1, 168, 4, 3), 168, (1, 1), {"num_group": 7}),
    ((1, 99, 4, 4), 33, (2, 2), {"num_group": 33}),
    ((1, 34, 4, 4), 68, (2, 2), {"num_group": 34}),
    ((1, 24, 11), 24, (5,), {"num_group": 6, "pad": (2,)}),
    ((1, 16, 3, 4, 5), 16, (2, 3, 2), {"num_group": 4}),
]


def test_convolutions_of_narrow_groups(runner: Runner, turn: int) -> None:
    """Some that fill vectors together, some only all of them, and some that are too many: every other on each CPU."""
    layers, shapes = Layers(), NARROW_GROUPS[turn % 2 :: 2]
    for (shape, filters, kernel, attributes), dtype in zip(shapes, in_turn(DTYPES, turn // 2), strict=False):
        first = layers.requantized(layers.input(layers.integers(shape, "int16", -200, 200)), dtype)
        layers.finish(layers.requantized(layers.convolution(first, filters, kernel, **attributes)))
    layers.check(runner=runner)


@pytest.mark.parametrize(
    ("outputs", "inputs", "groups", "merged"),
    [
        *[(4, 8, 8, 4), (7, 5, 3, 3), (12, 12, 4, 4), (16, 16, 2, 1), (1, 9, 33, 1)],
        *[(8, 8, 5, 2), (8, 8, 3, 2), (4, 3, 13, 13), (4, 5, 12, 4), (4, 12, 7, 4)],
    ],
)
def test_merged_groups_read_what_they_read(outputs: int, inputs: int, groups: int, merged: int) -> None:
    dot = Dot("uint8", 128, "int8", 4, 16, "int32")
    weight = np.random.default_rng(0).integers(1, 128, (outputs * groups, inputs, 3)).astype(np.int8)
    made, fewer = merged_groups(weight, groups, dot, 0)
    assert fewer == -(-groups // merged) and made.shape == (fewer * merged * outputs, merged * inputs, 3)
    assert np.count_nonzero(made) == weight.size
    for channel, row in enumerate(weight):
        group = channel // outputs
        begin = (group - min(group // merged * merged, groups - merged)) * inputs
        np.testing.assert_array_equal(made[channel, begin : begin + inputs], row)


@pytest.mark.parametrize(("outputs", "groups", "rows", "more"), [(8, 13, 112, 1), (4, 26, 112, 2), (24, 3, 80, 1)])
def test_groups_of_zeros_follow_up_to_where_memory_ends(outputs: int, groups: int, rows: int, more: int) -> None:
    dot = Dot("uint8", 0, "int8", 4, outputs, "int32")
    weight = np.ones((outputs * groups, 8, 3), np.int8)
    made, found = merged_groups(weight, groups, dot, rows)
    assert found == groups + more and len(made) == found * outputs >= rows
    np.testing.assert_array_equal(made[: len(weight)], weight)
    assert not made[len(weight) :].any()


@pytest.mark.parametrize("cpu", ["x86-64", "x86-64-v3", "icelake-server"])
@pytest.mark.parametrize("channels", [104, 208, 440])
def test_an_odd_number_of_groups_of_eight_is_multiplied_by_dots(cpu: str, channels: int) -> None:
    layers = Layers()
    data = layers.requantized(layers.input(layers.integers((1, channels, 6, 6), "int16", -200, 200)))
    layers.finish(layers.requantized(layers.convolution(data, channels, (3, 3), num_group=channels // 8)))
    assert any("pmadd" in text or "vpdpbusd" in text for text in kernel_texts(layers.graph(), cpu))


def test_convolutions_in_slices(runner: Runner, turn: int) -> None:
    """Slices of 16, of 4 and of 1 channel, of different lengths, and the last one short: every other on each CPU."""
    layers = Layers()
    shapes = [
        ((1, 32, 8, 8), (16, 16), 24, (3, 3), {}),
        ((2, 35, 5, 7), (16, 16, 3), 48, (1, 1), {}),
        ((1, 16, 9, 9), (4, 4, 4, 4), 16, (3, 3), {"stride": (2, 2), "pad": (1, 1)}),
        ((1, 12, 7, 7), (4, 4, 4), 7, (1, 1), {}),
        ((1, 5, 6, 6), (1, 1, 1, 1, 1), 20, (3, 3), {"dilate": (2, 1)}),
        ((1, 24, 6, 6), (4, 12, 8), 16, (2, 3), {}),
        ((1, 21, 11), (8, 8, 5), 33, (4,), {}),
    ][turn % 2 :: 2]
    for (shape, lengths, filters, kernel, attributes), dtype in zip(shapes, in_turn(BYTES, turn // 2), strict=False):
        first = layers.requantized(layers.input(layers.integers(shape, "int16", -200, 200)), dtype)
        layers.finish(layers.requantized(layers.sliced(first, lengths, filters, kernel, **attributes)))
    layers.check(runner=runner)


def test_wide_and_narrow_factors(runner: Runner) -> None:
    """16-bit data, 16-bit weights, both, and data that two convolutions request in different dtypes."""
    layers = Layers()
    narrow = layers.requantized(layers.input(layers.integers((1, 20, 6, 6), "int16", -200, 200)), "int8")
    wide = layers.requantized(layers.input(layers.integers((1, 20, 6, 6), "int16", -20000, 20000)), "int16")
    for data in (narrow, wide):
        for dtype, reach in (("int8", 7), ("int16", 300)):
            weight = layers.parameter_of((24, 20, 3, 3), dtype, -reach, reach)
            layers.add("Convolution", data, weight, kernel=(3, 3), num_filter=24, no_bias=True)
    layers.check(runner=runner)


def test_extremes_stay_exact(runner: Runner) -> None:
    """255 times 127, and -128 times -127, in every product: what saturating instructions lose."""
    layers = Layers()
    for value, dtype, weight in ((255, "uint8", 127), (-128, "int8", -127), (-128, "int8", 127)):
        given = layers.input(np.full((1, 64, 5, 5), value, dtype))
        data = layers.hidden("clip", given, a_min=-1e4, a_max=1e4)
        factors = layers.parameter(np.full((16, 64, 3, 3), weight, np.int8))
        layers.add("Convolution", data, factors, kernel=(3, 3), num_filter=16, no_bias=True)
        flat = layers.hidden("Flatten", data)
        layers.add(
            "FullyConnected", flat, layers.parameter(np.full((9, 1600), weight, np.int8)), num_hidden=9, no_bias=True
        )
    layers.check(runner=runner)


def test_pairs_of_products_that_16_bits_just_hold_and_do_not_hold(runner: Runner) -> None:
    """2 · 255 · 64 is 32640, and 2 · 255 · 65 exceeds int16."""
    layers = Layers()
    for value, dtype in ((255, "uint8"), (127, "int8"), (-128, "int8")):
        data = layers.hidden("clip", layers.input(np.full((1, 16, 3, 3), value, dtype)), a_min=-1e4, a_max=1e4)
        for weight in (64, -64, 65):
            factors = layers.parameter(np.full((16, 16, 1, 1), weight, np.int8))
            layers.add("Convolution", data, factors, kernel=(1, 1), num_filter=16, no_bias=True)
    layers.check(runner=runner)


def test_words_at_the_ends_of_their_ranges(runner: Runner) -> None:
    """Data of 16 bits times weights of 8, and two products of words that 32 bits just hold."""
    layers = Layers()
    cases = [(-(2**15), 16, weight, "int8") for weight in (127, -128)]
    cases += [(2**15 - 1, 16, -128, "int8"), (2**15 - 1, 2, 2**15 - 1, "int16"), (-(2**15), 2, 2**15 - 1, "int16")]
    for value, channels, weight, dtype in cases:
        given = layers.input(np.full((1, channels, 3, 3), value, "int16"))
        data = layers.hidden("clip", given, a_min=-(2.0**15), a_max=2.0**15 - 1)
        factors = layers.parameter(np.full((16, channels, 1, 1), weight, dtype))
        layers.add("Convolution", data, factors, kernel=(1, 1), num_filter=16, no_bias=True)
    layers.check(runner=runner)


def test_residuals_pools_concatenations_and_flattened_rows(runner: Runner) -> None:
    layers = Layers()
    data = layers.requantized(layers.input(layers.integers((2, 3, 12, 10), "int16", -200, 200)), "int8")
    stem = layers.requantized(layers.convolution(layers.padded(data, 1, 2, 0, 1, value=-3), 24, (3, 3)))
    left = layers.requantized(layers.convolution(layers.padded(stem, 1, 1, 1, 1), 24, (3, 3)), "int16")
    right = layers.requantized(layers.convolution(stem, 24, (1, 1)), "int16")
    summed = layers.hidden("elemwise_add", layers.hidden("Cast", left, dtype="int32"), right)
    joined = layers.requantized(summed, "int8")
    pooled = layers.hidden("Pooling", joined, kernel=(3, 2), stride=(2, 2), pad=(1, 1), pool_type="max")
    total = layers.hidden("Pooling", joined, kernel=(3, 2), stride=(2, 2), pad=(1, 1), pool_type="sum")
    both = layers.hidden("Concat", pooled, layers.requantized(total, "int8"), dim=1)
    upsampled = layers.hidden("UpSampling", both, scale=2, sample_type="nearest")
    tail = layers.requantized(layers.convolution(layers.padded(upsampled, 0, 1, 2, 0), 10, (3, 3), stride=(2, 2)))
    flat = layers.hidden("Flatten", tail)
    weight = layers.parameter_of((11, flat.shape[1]), "int8", -127, 127)
    layers.add("FullyConnected", flat, weight, num_hidden=11, no_bias=True)
    layers.add("Pooling", tail, global_pool=True, kernel=(1, 1), pool_type="sum")
    layers.check(runner=runner)
