"""Depthwise convolutions whose sums are stored as bytes: groups of blocks of channels, halves of groups, blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any

import pytest
from layers import ENDINGS_IN_TURN, Layers, in_turn, kernel_texts

from mrt.backend import TvmRunner
from mrt.backend.kernels.x86.avx512.byte_expression import COUNT
from mrt.backend.kernels.x86.depthwise_strip import PERMUTE, turned
from mrt.symbol import Runner

ENDS = {"uint8": (0, 255), "int8": (-128, 127)}
"""Of the ranges of data."""
WEIGHTS = {"32 bits": (-128, -127, 1, 127), "16 bits": (-20, -19, 1, 20)}
"""By how many bits of sums are scaled."""
SHAPES: list[tuple[tuple[int, ...], tuple[int, int], dict[str, Any]]] = [
    ((1, 32, 9, 8), (3, 3), {"pad": (1, 1)}),
    ((1, 32, 8, 7), (3, 3), {"pad": (1, 1)}),
    ((2, 48, 8, 8), (3, 3), {"pad": (1, 1)}),
    ((1, 64, 8, 8), (3, 3), {"pad": (1, 1)}),
    ((1, 64, 7, 7), (3, 3), {"pad": (1, 1)}),
    ((1, 80, 9, 9), (3, 3), {"stride": (2, 2)}),
    ((2, 96, 10, 12), (3, 3), {"stride": (2, 2), "pad": (1, 1)}),
    ((1, 112, 8, 20), (3, 3), {"pad": (1, 1)}),
    ((1, 128, 5, 9), (5, 5), {"pad": (2, 2)}),
    ((1, 70, 10, 6), (5, 3), {"stride": (3, 1), "dilate": (1, 2)}),
    ((1, 64, 9, 8), (4, 1), {"dilate": (2, 1)}),
    ((1, 64, 8, 4), (1, 1), {}),
]
FORMS = [SHAPES[place] for place in (1, 3, 6, 9)]
"""Halves of a group; a group; a group and halves, of several samples; what no group divides."""


def stored_as_bytes(
    kinds: Iterable[tuple[str, str]], shapes: Any = SHAPES, endings: Sequence[str] = ("relu",)
) -> Layers:
    """Data and weights at the ends of their ranges, biases and scales of every channel, and a layer that reads it.

    kinds: of ENDS and of WEIGHTS, those of each layer in turn. endings: of ENDINGS, one behind each layer in turn.
    """
    layers = Layers()
    random = layers.random
    for (shape, kernel, attributes), kind, ending in zip(shapes, cycle(kinds), cycle(endings), strict=False):
        channels, dtype, (lo, hi), weights = shape[1], kind[0], ENDS[kind[0]], WEIGHTS[kind[1]]
        data = layers.input(random.choice([lo, lo + 1, hi], shape).astype(dtype))
        weight = layers.parameter(random.choice(weights, (channels, 1, *kernel)).astype("int8"))
        given = {"kernel": kernel, "num_filter": channels, "num_group": channels, "no_bias": True, **attributes}
        sums = layers.hidden("Convolution", layers.hidden("clip", data, a_min=lo, a_max=hi), weight, **given)
        most = 256 * kernel[0] * kernel[1] * max(map(abs, weights)) + 3000
        biased = layers.hidden("broadcast_add", sums, layers.parameter_of((1, channels, 1, 1), "int16", -3000, 3000))
        stored = layers.bytes_of(biased, most, ending)
        layers.finish(layers.convolution(stored, 8, (1, 1)))
    return layers


@pytest.mark.sampled(2)
def test_sums_are_stored_as_bytes(runner: Runner, turn: int) -> None:
    """Every other shape on each CPU, and all of them below."""
    kinds = [("uint8", "32 bits"), ("int8", "16 bits")]
    stored_as_bytes(in_turn(kinds, turn // 2), SHAPES[turn % 2 :: 2]).check(runner=runner)


@pytest.mark.parametrize(("threads", "dtype", "weights"), [(1, "uint8", "16 bits"), (2, "int8", "32 bits")])
def test_they_are_on_this_machine(threads: int, dtype: str, weights: str) -> None:
    """Every other shape by each number of threads."""
    layers = stored_as_bytes([(dtype, weights)], SHAPES[threads - 1 :: 2])
    layers.check(runner=TvmRunner({"mcpu": "native", "threads": threads}))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("endings", ENDINGS_IN_TURN)
def test_bytes_of_every_kind_are_stored(runner: Runner, turn: int, endings: str) -> None:
    """Every other ending and form on each CPU, and all of them below."""
    own = slice((turn + 1) % 2, None, 2)
    stored_as_bytes([("uint8", "32 bits")], FORMS[own], ENDINGS_IN_TURN[endings][own]).check(runner=runner)


@pytest.mark.parametrize("endings", ENDINGS_IN_TURN)
def test_bytes_of_every_kind_are_on_this_machine(endings: str) -> None:
    stored_as_bytes([("int8", "32 bits")], FORMS, ENDINGS_IN_TURN[endings]).check()


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("channels", [32, 64, 96])
def test_no_byte_of_a_group_is_permuted(channels: int, weights: str) -> None:
    shapes = [((1, channels, 10, 10), (3, 3), {})]
    graph = stored_as_bytes([("uint8", weights)], shapes).graph()
    (text,) = [each for each in kernel_texts(graph) if 'sblock("columns")' in each]
    assert f"uint8x{COUNT}" in text and PERMUTE not in text


def test_what_is_turned_twice_is_where_it_was() -> None:
    everything = [(block, lane) for block in range(4) for lane in range(16)]
    assert sorted(turned(*each) for each in everything) == everything
    assert [turned(*turned(*each)) for each in everything] == everything
