"""Sums that are stored as bytes, whatever these are: clipped with or without a sign, added to others, looked up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from layers import ENDINGS, ENDINGS_IN_TURN, Layers, kernel_texts

from mrt.symbol import Runner

SHAPES: list[tuple[tuple[int, ...], int, int]] = [
    ((1, 16, 7, 7), 48, 1),
    ((2, 24, 5, 9), 32, 3),
    ((1, 64, 9, 8), 20, 1),
    ((1, 8, 10, 11), 96, 3),
    ((3, 40, 1, 1), 80, 1),
]
"""Of data, filters and the side of the kernel."""


def stored_as_bytes(endings: Sequence[str], shapes: Any) -> Layers:
    """Weights at the ends of their ranges, biases of every channel, and a layer that reads the bytes.

    endings: of ENDINGS, as many as there are shapes.
    """
    layers = Layers()
    for (shape, filters, side), ending in zip(shapes, endings, strict=True):
        data = layers.input(layers.integers(shape, "uint8"))
        weight = layers.parameter(
            layers.random.choice([-128, -1, 1, 127], (filters, shape[1], side, side)).astype("int8")
        )
        given = {"kernel": (side, side), "num_filter": filters, "no_bias": True, "pad": (side // 2,) * 2}
        sums = layers.hidden("Convolution", data, weight, **given)
        biased = layers.hidden("broadcast_add", sums, layers.parameter_of((1, filters, 1, 1), "int16", -3000, 3000))
        stored = layers.bytes_of(biased, 2**15 * shape[1] * side**2 + 3000, ending)
        layers.finish(layers.convolution(stored, 8, (1, 1)))
    return layers


@pytest.mark.sampled(2)
@pytest.mark.parametrize("endings", ENDINGS_IN_TURN)
def test_bytes_are_those_of_the_graph(runner: Runner, turn: int, endings: str) -> None:
    """Every other ending and shape on each CPU, and all of them below."""
    own = slice(turn % 2, None, 2)
    stored_as_bytes(ENDINGS_IN_TURN[endings][own], SHAPES[own]).check(runner=runner)


@pytest.mark.parametrize("endings", ENDINGS_IN_TURN)
def test_they_are_on_this_machine(endings: str) -> None:
    stored_as_bytes(ENDINGS_IN_TURN[endings], SHAPES).check()


@pytest.mark.parametrize("ending", ENDINGS)
def test_four_vectors_are_stored_at_once(ending: str) -> None:
    graph = stored_as_bytes([ending], [((1, 64, 8, 8), 64, 1)]).graph()
    (text,) = [each for each in kernel_texts(graph) if "pack" in each and "uint8" in each and "packed_store" in each]
    assert ("packuswb" in text) is (ENDINGS[ending][0] == 0)
    assert ("packsswb" in text) is (ENDINGS[ending][0] < 0)
    assert ("mrt_lookup" in text) is ("table" in ending)
