"""Functions and normalizations of float32, which vectors compute, against float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
from compiled import Bundle

from mrt.backend import TvmRunner
from mrt.backend.fusion.regions import MAX_REPEATING, find_regions
from mrt.backend.te.registry import repeats_input

SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38], np.float32)


def erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(each) for each in x])


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0.0, -x))


@pytest.mark.parametrize(
    ("name", "function", "units", "span"),
    [
        ("exp", np.exp, 2, 110),
        ("erf", erf, 8, 6),
        ("tanh", np.tanh, 8, 12),
        ("sigmoid", sigmoid, 4, 110),
    ],
)
def test_functions_are_right_to_a_few_units_in_the_last_place(
    name: str, function: np.ufunc, units: int, span: float
) -> None:
    grid = np.linspace(-span, span, 20_001)
    x = np.concatenate([grid, grid / 1000, SPECIAL]).astype(np.float32)
    bundle = Bundle()
    bundle.add(name, bundle.input(x))
    (found,) = TvmRunner().prepare(bundle.graph())(bundle.feeds)
    with np.errstate(over="ignore"):
        exact = function(x.astype(np.float64))
        expected = exact.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))
    finite = np.isfinite(expected)
    unit = np.spacing(np.maximum(np.abs(expected[finite]), np.finfo(np.float32).tiny)).astype(np.float64)
    distance = np.abs(found[finite] - exact[finite])
    if name == "sigmoid":  # below the least normal number it may be 0
        distance[np.abs(exact[finite]) < np.finfo(np.float32).tiny] = 0
        assert np.max(found[finite][exact[finite] < 1e-39], initial=0) <= np.finfo(np.float32).tiny
    assert np.max(distance / unit) <= units


def normalized(name: str, x: np.ndarray) -> np.ndarray:
    """Along the last axis, in float64; a layer normalization of gamma 1 and beta 0."""
    x = x.astype(np.float64)
    if name == "LayerNorm":
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    logarithm = x - x.max(-1, keepdims=True)
    logarithm = logarithm - np.log(np.exp(logarithm).sum(-1, keepdims=True))
    return np.exp(logarithm) if name == "softmax" else logarithm


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "LayerNorm"])
@pytest.mark.parametrize("shape", [(3, 99), (2, 37, 16), (2, 3, 7, 5), (1, 2)])
def test_rows_are_normalized_and_what_pads_them_is_never_seen(name: str, shape: tuple[int, ...]) -> None:
    """A product before makes rows in whole vectors, one behind multiplies their padding by 0."""
    bundle, n = Bundle(), shape[-1]
    x, w = bundle.floats(*shape) * 4, bundle.floats(n, n)
    layer = {"flatten": False, "no_bias": True, "num_hidden": n}
    operands = [bundle.parameter(np.full(n, value, np.float32)) for value in (1, 0)] if name == "LayerNorm" else []
    attributes = {"eps": 1e-5} if operands else {}
    fed = bundle.input(x)
    bundle.add(name, fed, *operands, **attributes)
    made = bundle.hidden("FullyConnected", fed, bundle.parameter(w), **layer)
    rows = bundle.hidden(name, made, *operands, **attributes)
    bundle.add("FullyConnected", bundle.hidden("_mul_scalar", rows, scalar=0.5), bundle.parameter(w), **layer)
    plain, behind = TvmRunner().prepare(bundle.graph())(bundle.feeds)
    np.testing.assert_allclose(plain, normalized(name, x), rtol=1e-4, atol=1e-5)
    product = normalized(name, (x.astype(np.float64) @ w.T)) * 0.5 @ w.T
    np.testing.assert_allclose(behind, product, rtol=1e-4, atol=1e-3)


def test_masked_places_have_no_share() -> None:
    bundle = Bundle()
    x = bundle.floats(4, 20)
    x[1:3, 5:] = -np.inf
    bundle.add("softmax", bundle.input(x))
    (found,) = TvmRunner().prepare(bundle.graph())(bundle.feeds)
    np.testing.assert_allclose(found, normalized("softmax", x), rtol=1e-5, atol=1e-7)
    assert not found[1:3, 5:].any()


def test_computed_scales_of_a_layer_normalization() -> None:
    """They are as long as they are, and not padded as parameters are."""
    bundle = Bundle()
    x, gamma, beta = (bundle.input(bundle.floats(*shape)) for shape in ((3, 21), (21,), (21,)))
    bundle.add("LayerNorm", x, bundle.hidden("relu", gamma), bundle.hidden("relu", beta))
    bundle.check(tolerance=1e-5)


@pytest.mark.parametrize("name", ["reciprocal", "log", "rsqrt"])
def test_functions_that_have_no_value_at_0_are_not_taken_of_padding(name: str) -> None:
    bundle = Bundle()
    w = np.abs(bundle.floats(5, 5)) + 1
    layer = {"flatten": False, "no_bias": True, "num_hidden": 5}
    made = bundle.hidden("FullyConnected", bundle.input(np.abs(bundle.floats(3, 5)) + 1), bundle.parameter(w), **layer)
    bundle.add("FullyConnected", bundle.hidden(name, made), bundle.parameter(w), **layer)
    bundle.check(tolerance=1e-5)


def test_few_functions_that_repeat_their_input_share_a_region() -> None:
    bundle = Bundle()
    x = bundle.input(bundle.floats(4))
    for _ in range(7):
        x = bundle.hidden("silu", x)
    bundle.add("relu", x)
    regions = find_regions(bundle.graph())
    assert [sum(map(repeats_input, region.symbols)) for region in regions] == [2, 2, 2, 1]
    assert MAX_REPEATING == 2
