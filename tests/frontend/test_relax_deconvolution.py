"""Relax transposed convolutions give what TVM computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relax_modules import build, check, constant, operators, random, run
from tvm.relax import op

from mrt.frontend.relax import from_relax


@pytest.mark.parametrize(
    ("channels", "filters", "attributes", "expected"),
    [
        (3, 5, {}, ["Deconvolution"]),
        (4, 6, {"strides": (2, 3), "padding": (1, 0)}, ["Deconvolution"]),
        (4, 6, {"strides": (2, 3), "padding": (1, 2), "output_padding": (1, 2)}, ["Deconvolution"]),
        (4, 8, {"strides": 2, "groups": 2, "output_padding": 1}, ["Deconvolution"]),
        (4, 4, {"strides": 2, "groups": 4, "padding": 1, "output_padding": (0, 1)}, ["Deconvolution"]),
        (3, 5, {"dilation": (2, 3), "strides": (1, 2)}, ["Deconvolution"]),
        (4, 6, {"dilation": 2, "strides": 3, "groups": 2, "padding": 2, "output_padding": (2, 1)}, ["Deconvolution"]),
        (3, 5, {"padding": (1, 0, 0, 0), "strides": 2}, ["Deconvolution"]),
        (3, 5, {"padding": (0, 1, 1, 1), "strides": 2}, ["Deconvolution", "slice_axis"]),
        (3, 5, {"padding": (0, 0, 2, 1), "strides": 3, "output_padding": (0, 2)}, ["Deconvolution", "slice_axis"]),
    ],
)
def test_conv2d_transpose(channels: int, filters: int, attributes: dict[str, Any], expected: list[str]) -> None:
    weight = random(channels, filters // attributes.get("groups", 1), 3, 2, seed=5)
    graph = check(lambda x: op.nn.conv2d_transpose(x, constant(weight), **attributes), x=(2, channels, 5, 4))
    assert operators(graph) == expected


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("padding", [1, (0, 2), (2, 0)])
def test_conv1d_transpose(groups: int, padding: Any) -> None:
    weight = constant(random(4, 6 // groups, 3, seed=5))
    check(
        lambda x: op.nn.conv1d_transpose(
            x, weight, strides=3, padding=padding, output_padding=2, dilation=2, groups=groups
        ),
        x=(2, 4, 6),
    )


@pytest.mark.parametrize("groups", [1, 2])
def test_conv3d_transpose(groups: int) -> None:
    weight = constant(random(2, 4 // groups, 2, 3, 1, seed=5))
    check(
        lambda x: op.nn.conv3d_transpose(
            x, weight, strides=(1, 2, 2), padding=(0, 1, 0, 1, 0, 0), output_padding=(0, 1, 1), groups=groups
        ),
        x=(1, 2, 3, 4, 2),
    )


def test_weight_that_is_computed() -> None:
    check(lambda x, w: op.nn.conv2d_transpose(x, op.nn.relu(w), strides=2), x=(1, 3, 4, 4), w=(3, 2, 3, 3))


def test_constant_added_becomes_its_bias() -> None:
    weight, bias = random(3, 4, 2, 2), random(4, 1, 1, seed=1)
    graph = check(
        lambda x: op.add(op.nn.conv2d_transpose(x, constant(weight), strides=2), constant(bias)), x=(1, 3, 4, 4)
    )
    assert operators(graph) == ["Deconvolution"]


@pytest.mark.parametrize("kernel", ["HWIO", "OIHW"])
def test_channels_last(kernel: str) -> None:
    """TVM compiles NCHW only, so what it gives for that is brought into the layout."""
    weight, data = random(4, 6, 3, 3), random(1, 5, 4, 4)
    attributes = {"strides": 2, "padding": (1, 0, 0, 1)}
    last = constant(np.transpose(weight, ["IOHW".index(letter) for letter in kernel]))
    mod = build(
        lambda x: op.nn.max_pool2d(
            op.nn.conv2d_transpose(x, last, data_layout="NHWC", kernel_layout=kernel, **attributes), layout="NHWC"
        ),
        x=data.shape,
    )
    plain = build(lambda x: op.nn.max_pool2d(op.nn.conv2d_transpose(x, constant(weight), **attributes)), x=(1, 4, 5, 4))
    expected = np.transpose(run(plain, {"x": np.transpose(data, (0, 3, 1, 2))})[0], (0, 2, 3, 1))
    graph = from_relax(mod)
    np.testing.assert_allclose(graph.evaluate({"x": data})[0], expected, rtol=1e-5, atol=1e-5)
    assert operators(graph).count("transpose") == 2, "one for the input, one for the output"
