"""Taps that read nothing but the border are dropped, and the border with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mrt.preparation.drop_border_taps import DropBorderTaps
from mrt.symbol import Graph, GraphBuilder, TensorType
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.pad import Pad

RNG = np.random.default_rng(0)


def padded_convolution(
    size: tuple[int, ...], kernel: tuple[int, ...], widths: tuple[int, ...], pad: dict[str, Any], **attributes: Any
) -> Graph:
    """A convolution of a Pad of `widths` around an image of `size`."""
    builder, groups = GraphBuilder(), attributes.get("num_group", 1)
    x = builder.input("x", TensorType((2, 4, *size)))
    data = builder.apply(Pad(pad_width=(0, 0, 0, 0, *widths), **pad), [x], "pad")
    weight = builder.parameter("w", RNG.normal(size=(6, 4 // groups, *kernel)).astype(np.float32))
    operator = Convolution(kernel=kernel, num_filter=6, **attributes)
    bias = builder.parameter("b", RNG.normal(size=6).astype(np.float32))
    return builder.graph([builder.apply(operator, [data, weight, bias], "conv")])


CASES = {
    "DeepLab's rate of 24": ((14, 14), (3, 3), (24,) * 4, {"dilate": (24, 24)}, (1, 1), (0, 0, 0, 0)),
    "a rate of 12 stays": ((14, 14), (3, 3), (12,) * 4, {"dilate": (12, 12)}, (3, 3), (12,) * 4),
    "an image of one element": ((1, 1), (3, 3), (1,) * 4, {}, (1, 1), (0, 0, 0, 0)),
    "one axis only": ((1, 9), (3, 3), (1,) * 4, {}, (1, 3), (0, 0, 1, 1)),
    "groups": ((2, 2), (5, 5), (2,) * 4, {"num_group": 2}, (3, 3), (1,) * 4),
    "more behind than before": ((3, 3), (4, 4), (0, 3, 0, 3), {}, (3, 3), (0, 2, 0, 2)),
    "a stride": ((1, 1), (3, 3), (1, 2, 1, 2), {"stride": (2, 2)}, (1, 1), (0, 1, 0, 1)),
    "a row": ((3,), (7,), (3, 3), {}, (5,), (2, 2)),
    "three axes": ((1, 3, 2), (3, 3, 3), (1,) * 6, {}, (1, 3, 3), (0, 0, 1, 1, 1, 1)),
}
"""By what they are: the image, the kernel, the border, attributes; the kernel and the border that are left."""


@pytest.mark.parametrize("name", CASES)
def test_the_same_with_fewer_taps(name: str, assert_same_outputs: Any) -> None:
    size, kernel, widths, attributes, kept, border = CASES[name]
    graph = padded_convolution(size, kernel, widths, {}, **attributes)
    found = DropBorderTaps()(graph)
    (conv,) = found.outputs
    assert conv.operator.kernel == kept and conv.inputs[1].shape[2:] == kept
    source = conv.inputs[0]
    assert (source.operator.pad_width[4:] if source.op == "Pad" else (0,) * len(border)) == border
    assert conv.type == graph.outputs[0].type
    assert_same_outputs(graph, found)


def test_random_windows(assert_same_outputs: Any) -> None:
    """Of every dilation, stride and border; nothing is left that one could drop."""
    dropped = 0
    for _ in range(300):
        size, taps, each, step = (int(RNG.integers(1, most)) for most in (6, 6, 5, 4))
        before, after = (int(n) for n in RNG.integers(0, 9, 2))
        if size + before + after < (taps - 1) * each + 1:
            continue
        graph = padded_convolution((size,), (taps,), (before, after), {}, dilate=(each,), stride=(step,))
        found = DropBorderTaps()(graph)
        dropped += found.outputs[0].operator.kernel != (taps,)
        assert_same_outputs(graph, found)
        again = DropBorderTaps()(found)
        assert again.outputs[0].operator.kernel == found.outputs[0].operator.kernel
    assert dropped > 50


@pytest.mark.parametrize("pad", [{"mode": "edge"}, {"constant_value": 1.0}])
def test_other_borders_stay(pad: dict[str, Any]) -> None:
    graph = padded_convolution((1, 1), (3, 3), (1,) * 4, pad)
    assert DropBorderTaps()(graph).outputs[0].operator.kernel == (3, 3)


def test_computed_weights_stay() -> None:
    builder = GraphBuilder()
    x, weight = builder.input("x", TensorType((1, 2, 1, 1))), builder.input("w", TensorType((1, 2, 3, 3)))
    data = builder.apply(Pad(pad_width=(0, 0, 0, 0, 1, 1, 1, 1)), [x])
    graph = builder.graph([builder.apply(Convolution(kernel=(3, 3), num_filter=1, no_bias=True), [data, weight])])
    assert DropBorderTaps()(graph).outputs[0].operator.kernel == (3, 3)
