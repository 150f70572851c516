"""Softmax and normalization, row by row."""

from __future__ import annotations

import pytest
from layers import Layers, normalized, softmax_of

from mrt.backend.explain import explain
from mrt.symbol import Runner


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shape", [(3, 33, 19), (1, 5, 16), (2, 2, 7, 40), (4, 3)])
def test_rows(runner: Runner, shape: tuple[int, ...]) -> None:
    """Softmax and normalization of rows that fill vectors or do not, written padded or in the graph's order."""
    layers = Layers()
    plain = layers.input(layers.integers(shape, "int8", -100, 100))
    weight = layers.parameter_of((shape[-1], shape[-1]), "int8", -3, 3)
    product = layers.hidden("FullyConnected", plain, weight, num_hidden=shape[-1], no_bias=True, flatten=False)
    padded = layers.hidden("Cast", layers.hidden("clip", product, a_min=-127.0, a_max=127.0), dtype="int8")
    for data in (plain, padded):
        for result in (softmax_of(layers, data), *normalized(layers, data)):
            layers.add("clip", result, a_min=-20000.0, a_max=20000.0)
    layers.check(runner=runner)


def test_rows_are_computed_by_one_function() -> None:
    layers = Layers()
    weight = layers.parameter_of((24, 24), "int8", -3, 3)
    given = layers.input(layers.integers((2, 9, 24), "int8", -100, 100))
    product = layers.hidden("FullyConnected", given, weight, num_hidden=24, no_bias=True, flatten=False)
    data = layers.hidden("Cast", layers.hidden("clip", product, a_min=-127.0, a_max=127.0), dtype="int8")
    layers.add("Cast", softmax_of(layers, data), dtype="uint8")
    calls = explain(layers.graph(), []).calls
    assert [call.operators[0] for call in calls if call.operators != ("copy",)] == ["FullyConnected", "max"]
