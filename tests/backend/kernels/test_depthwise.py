"""Depthwise convolutions, whatever instructions multiply."""

from __future__ import annotations

import pytest
from layers import Layers

from mrt.symbol import Runner


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_depthwise_convolutions(runner: Runner, dtype: str) -> None:
    layers = Layers()
    for shape, kernel, attributes in [
        ((2, 32, 9, 7), (3, 3), {}),
        ((1, 19, 8, 8), (3, 3), {"stride": (2, 2)}),
        ((2, 40, 6, 9), (3, 3), {"pad": (1, 1)}),
        ((1, 16, 8, 6), (2, 3), {"stride": (2, 1)}),
        ((1, 3, 8, 8), (5, 5), {"dilate": (1, 2), "pad": (2, 4)}),
        ((1, 48, 12, 12), (8, 7), {}),
        ((1, 19, 12, 12), (8, 7), {}),
        ((1, 1, 6, 6), (3, 3), {}),
        ((1, 24, 15), (4,), {"stride": (3,)}),
    ]:
        first = layers.requantized(layers.input(layers.integers(shape, "int16", -200, 200)), dtype)
        depthwise = layers.convolution(first, shape[1], kernel, num_group=shape[1], **attributes)
        layers.finish(layers.requantized(layers.convolution(layers.requantized(depthwise), 8, (1,) * len(kernel))))
    layers.check(runner=runner)
