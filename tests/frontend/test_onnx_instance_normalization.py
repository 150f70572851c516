"""Normalisation of each sample by itself in ONNX, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_models import OPSETS, assert_agrees, operators_of, single

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.frontend.onnx import from_onnx

RNG = np.random.default_rng(6)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (1, 3, 2, 2, 2)])
@pytest.mark.parametrize("epsilon", [None, 0.1])
def test_instance_normalization(opset: int, shape: tuple[int, ...], epsilon: float | None) -> None:
    attributes = {} if epsilon is None else {"epsilon": epsilon}
    constants = {name: RNG.random(3).astype(np.float32) + 0.5 for name in ("gamma", "beta")}
    graph = assert_agrees(single("InstanceNormalization", shape, constants, opset, **attributes))
    assert operators_of(graph) == ["InstanceNorm"]


@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 3, 4, 5)])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("p", [None, 2])
def test_lp_normalization(shape: tuple[int, ...], axis: int | None, p: int | None) -> None:
    if axis == 1 and len(shape) == 1:
        pytest.skip("a vector has no axis 1")
    attributes = {key: value for key, value in (("axis", axis), ("p", p)) if value is not None}
    graph = assert_agrees(single("LpNormalization", shape, **attributes))
    assert operators_of(graph).count("L2Normalization") == 1


def test_zeros_stay_zeros() -> None:
    model = single("LpNormalization", (2, 3), axis=1)
    assert_agrees(model, {"x": np.array([[0, 0, 0], [0, 3, 4]], np.float32)})


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_lengths_by_magnitudes(axis: int) -> None:
    assert_agrees(single("LpNormalization", (2, 3, 4), axis=axis, p=1))
    zeros = {"x": np.array([[0, 0, 0], [1, -3, 4]], np.float32)}
    assert_agrees(single("LpNormalization", (2, 3), axis=1, p=1), zeros)


def test_other_norms_are_refused() -> None:
    with pytest.raises(UnsupportedOperatorError, match="attribute p is 3; 1 or 2 is needed"):
        from_onnx(single("LpNormalization", (2, 3), p=3))


@pytest.mark.parametrize("size", [1, 3, 5, 9])
@pytest.mark.parametrize("attributes", [{}, {"alpha": 0.5, "beta": 0.6, "bias": 1.5}])
def test_local_response_normalization(size: int, attributes: dict[str, float]) -> None:
    graph = assert_agrees(single("LRN", (2, 6, 3, 2), size=size, **attributes))
    assert operators_of(graph) == ["square", "Convolution", "_power_scalar", "elemwise_mul"]


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("shape", [(2, 6, 4), (1, 6, 2, 3, 2)])
def test_local_response_normalization_that_onnx_runtime_has_not(size: int, shape: tuple[int, ...]) -> None:
    """Even sizes and other ranks, against the formula of the specification."""
    x = RNG.standard_normal(shape)
    expected = np.empty(shape)
    for channel in range(6):
        first, last = max(0, channel - (size - 1) // 2), min(5, channel + size // 2)
        sums = np.square(x[:, first : last + 1]).sum(axis=1)
        expected[:, channel] = x[:, channel] / (1.5 + 0.5 / size * sums) ** 0.6
    graph = from_onnx(single("LRN", shape, size=size, alpha=0.5, beta=0.6, bias=1.5))
    np.testing.assert_allclose(graph.evaluate({"x": x})[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opset", [18, 20, 21])
@pytest.mark.parametrize("shape", [(2, 6, 3, 2), (1, 6, 4), (2, 6, 2, 2, 2)])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_normalization(opset: int, shape: tuple[int, ...], groups: int) -> None:
    entries = 6 if opset >= 21 else groups
    constants = {name: RNG.random(entries).astype(np.float32) + 0.5 for name in ("scale", "bias")}
    graph = assert_agrees(single("GroupNormalization", shape, constants, opset, num_groups=groups, epsilon=0.01))
    assert "InstanceNorm" in operators_of(graph)


def test_groups_that_do_not_divide() -> None:
    constants = {name: np.ones(5, np.float32) for name in ("scale", "bias")}
    with pytest.raises(GraphError, match="num_groups 2 does not divide the channels of"):
        from_onnx(single("GroupNormalization", (1, 5, 4), constants, 21, num_groups=2))
    with pytest.raises(GraphError, match=r"scale has shape \(5,\); \(3,\) is needed"):
        from_onnx(single("GroupNormalization", (1, 6, 4), constants, 18, num_groups=3))


@pytest.mark.parametrize("axes", [None, (0, 2, 3), (2, 3), (1, 2, 3), (0, 1, 2, 3), (-1,), (0, 2)])
@pytest.mark.parametrize("opset", [9, 13])
def test_mean_variance_normalization(axes: tuple[int, ...] | None, opset: int) -> None:
    attributes = {} if axes is None else {"axes": axes}
    data = {"x": RNG.standard_normal((2, 3, 4, 5)).astype(np.float32) * 3 + 1}
    graph = from_onnx(single("MeanVarianceNormalization", (2, 3, 4, 5), opset=opset, **attributes))
    wide, over = data["x"].astype(np.float64), axes or (0, 2, 3)
    expected = (wide - wide.mean(over, keepdims=True)) / wide.std(over, keepdims=True)
    np.testing.assert_allclose(graph.evaluate(data)[0], expected, rtol=1e-5, atol=1e-5)
    assert "LayerNorm" in operators_of(graph)
