"""Channels that are no whole vectors, joined and cut: what moves them copies memory, what follows takes vectors."""

from __future__ import annotations

import numpy as np
import pytest
from layers import TARGETS, Layers, kernel_texts, runnable

from mrt.backend import TvmRunner
from mrt.backend.explain import explain
from mrt.symbol import Symbol


def made(layers: Layers, channels: int, dtype: str = "int8", size: tuple[int, ...] = (9, 8)) -> Symbol:
    """A tensor that is computed, channels last in memory."""
    given = layers.input(layers.integers((2, 5, *size), "int16", -200, 200))
    return layers.requantized(layers.convolution(layers.requantized(given), channels, (1,) * len(size)), dtype)


def joined(layers: Layers, lengths: tuple[int, ...], size: tuple[int, ...] = (9, 8)) -> Symbol:
    return layers.hidden("Concat", *(made(layers, length, size=size) for length in lengths), dim=1)


def functions(layers: Layers) -> list[tuple[str, ...]]:
    return [call.operators for call in explain(layers.graph(), []).calls]


PARTS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((27, 11), (9, 8)),
    ((30, 30), (7,)),
    ((20, 32, 82), (3, 4, 2)),
    ((3, 40), (9, 8)),
    ((64, 2), (7,)),
    ((1, 1, 62), (3, 4, 2)),
    ((18, 16, 5, 9), (9, 8)),
    ((20, 32, 82), (7,)),
    ((3, 40), (3, 4, 2)),
]
"""Channels of the parts, and what each channel is of: a third of them are joined on each CPU."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("cpu", "lengths", "size"),
    [
        (cpu, *part)
        for turn, cpu in enumerate(("native", "x86-64-v3", "x86-64", "cascadelake"))
        for part in PARTS[turn % 3 :: 3]
    ],
)
def test_parts_of_any_length(cpu: str, lengths: tuple[int, ...], size: tuple[int, ...]) -> None:
    if cpu not in ("native", *runnable()):
        pytest.skip(f"this machine has no {cpu}")
    layers = Layers()
    whole = joined(layers, lengths, size)
    layers.finish(layers.convolution(layers.hidden("relu", whole), 16, (1,) * len(size)))
    layers.add("elemwise_add", layers.hidden("Cast", whole, dtype="int32"), layers.hidden("Cast", whole, dtype="int32"))
    layers.check(TvmRunner(target={**TARGETS.get(cpu, {}), "threads": 2}))


def test_what_follows_an_uneven_join_is_no_part_of_it() -> None:
    layers = Layers()
    layers.finish(layers.convolution(layers.requantized(joined(layers, (27, 37)), "int8"), 16, (1, 1)))
    assert ("Concat",) in functions(layers)
    layers.check()


def test_what_follows_several_ways_is_no_part_of_it_either() -> None:
    layers = Layers()
    whole = joined(layers, (27, 37))
    for _ in range(2):
        layers.finish(layers.convolution(layers.requantized(whole, "int8"), 16, (1, 1)))
    assert ("Concat",) in functions(layers)
    layers.check()


def test_whole_vectors_and_tokens_are_joined_with_what_follows() -> None:
    layers = Layers()
    layers.finish(layers.convolution(layers.requantized(joined(layers, (32, 16)), "int8"), 16, (1, 1)))
    token, rows = (layers.input(layers.integers((2, count, 32), "int8")) for count in (1, 12))
    moved = layers.hidden("Concat", token, rows, dim=1)
    layers.add("relu", layers.hidden("broadcast_add", moved, layers.parameter_of((1, 13, 32), "int8", -9, 9)))
    assert ("Concat",) not in functions(layers)
    layers.check()


@pytest.mark.parametrize(("channels", "begin", "end"), [(61, 0, 50), (61, 7, 50), (61, 20, 61), (64, 14, 64)])
def test_a_slice_is_read_to_the_end_of_a_vector_where_memory_goes_on(channels: int, begin: int, end: int) -> None:
    """Of 61 channels 64 lie in memory: whole vectors of 41 channels from 20 on would end at 68."""
    layers = Layers()
    data, other = made(layers, channels, "int16"), made(layers, end - begin, "int16")
    part = layers.hidden("slice_axis", data, axis=1, begin=begin, end=end)
    total = layers.hidden("elemwise_add", layers.hidden("Cast", part, dtype="int32"), other)
    layers.finish(layers.convolution(layers.requantized(total, "int8"), 16, (1, 1)))
    layers.add("elemwise_add", data, data)
    asks = any(f"< {end - begin}," in text for text in kernel_texts(layers.graph()))
    assert asks == ((channels, begin) in {(61, 20), (64, 14)})
    layers.check()


def test_a_slice_with_steps_is_no_view() -> None:
    layers = Layers()
    data = made(layers, 61)
    part = layers.hidden("slice", data, begin=(0, 60, 0, 1), end=(2, 10, 9, 8), step=(1, -1, 2, 3))
    layers.finish(layers.convolution(layers.hidden("relu", part), 16, (1, 1)))
    layers.check()
    assert np.prod(part.shape) == 2 * 50 * 5 * 3
