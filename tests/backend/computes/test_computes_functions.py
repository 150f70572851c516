"""Functions of one argument compiled, against the records."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Bundle

from mrt.backend import TvmRunner
from mrt.backend.fusion.regions import find_regions
from mrt.symbol import Symbol
from mrt.symbol.operators.region import MAX_OPERATORS

ANYWHERE = np.concatenate([np.linspace(-6, 6, 301), [-1e30, -100, -20, -1e-4, 0, 1e-4, 20, 80, 1e30]]).astype(
    np.float32
)
MODERATE = np.linspace(-6, 6, 301).astype(np.float32)
POSITIVE = np.concatenate([np.linspace(1e-3, 6, 301), [1e-30, 1e30]]).astype(np.float32)


def test_functions_of_any_number() -> None:
    bundle = Bundle()
    x = bundle.input(ANYWHERE)
    for name in ("abs", "negative", "erf", "softsign", "softrelu", "silu", "hard_swish", "mish", "hard_sigmoid"):
        bundle.add(name, x)
    bundle.add("cos", bundle.input(ANYWHERE[np.abs(ANYWHERE) < 1e6]))
    bundle.add("sin", bundle.input(ANYWHERE[np.abs(ANYWHERE) < 1e6]))
    for name in ("arctan", "arcsinh"):
        bundle.add(name, bundle.input(ANYWHERE[np.abs(ANYWHERE) < 1e6]))
    for name in ("arcsin", "arccos", "arctanh", "tan"):
        bundle.add(name, bundle.input(np.linspace(-0.99, 0.99, 199).astype(np.float32)))
    odd = bundle.input(np.array([np.nan, np.inf, -np.inf, 0.0, 2.5], np.float32))
    bundle.add("isnan", odd)
    bundle.add("isinf", odd)
    bundle.add("isinf", odd, negative=False)
    bundle.add("arccosh", bundle.input(np.linspace(1, 9, 99).astype(np.float32)))
    for divisor, truncates in ((2.5, False), (-2.5, False), (2.5, True)):
        bundle.add("_mod_scalar", bundle.input(MODERATE), scalar=divisor, truncates=truncates)
    bundle.add("hard_sigmoid", x, alpha=-0.5, beta=0.25)
    for kind in ("elu", "selu", "gelu"):
        bundle.add("LeakyReLU", x, act_type=kind)
    y = bundle.input(MODERATE)
    for name in ("exp", "square", "sinh", "cosh"):
        bundle.add(name, y)
    bundle.add("LeakyReLU", y, act_type="gelu_tanh")
    for power in (1, 2, 3, 8, 0):
        bundle.add("_power_scalar", y, scalar=power)
    bundle.check(tolerance=1e-5)


@pytest.mark.parametrize("name", ["sinh", "cosh"])
def test_hyperbolic_functions_of_vectors(name: str) -> None:
    """TVM has none, so that only loops that it does not make vectors of itself compile by them."""
    bundle = Bundle()
    reals = np.array([[0, -1e-30, 1e-5, -2e-4, 1e-3, -1, 88, -89]], np.float32)
    for source in (reals, np.repeat(reals, 32, axis=0).reshape(1, 32, 8)):
        bundle.add(name, bundle.input(source))
    x = bundle.input(bundle.floats(1, 3, 6, 7))
    weight = bundle.parameter(bundle.floats(16, 3, 1, 1))
    bundle.add(name, bundle.hidden("Convolution", x, weight, kernel=(1, 1), num_filter=16, no_bias=True))
    bundle.check(tolerance=1e-5)


ROUNDINGS = "half_even", "half_odd", "floor", "away_from_zero", "half_away_from_zero", "half_toward_zero"


@pytest.mark.parametrize("first", [False, True])
def test_quantizers_are_computed_with_functions(first: bool) -> None:
    """Their expressions may have the input in many places, in which variables are bound."""
    bundle = Bundle()
    x, weight = bundle.input(bundle.floats(1, 3, 6, 7)), bundle.parameter(bundle.floats(16, 3, 3, 3))
    scale, zero = bundle.parameter(np.array(0.37, np.float32)), bundle.parameter(np.array(7, np.uint8))
    ends = [bundle.parameter(np.full((1, 1, 1, 1), end, np.float32)) for end in (-2, 2, -2, 2)]
    attributes = {"a_min": 0, "a_max": 255, "dtype": "uint8", "zero_point_first": first}

    def region() -> Symbol:
        product = bundle.hidden("Convolution", x, weight, kernel=(3, 3), num_filter=16, no_bias=True)
        return bundle.hidden("elementwise_region", product, expression="elemwise_mul(x, erf(x))")

    for rounding in ROUNDINGS:
        bundle.add("quantize", region(), scale, zero, rounding=rounding, **attributes)
    bundle.add("FakeQuantize", region(), *ends, levels=256)
    assert [len(each.symbols) for each in find_regions(bundle.graph())] == [3] * (len(ROUNDINGS) + 1)
    expected = bundle.graph().evaluate(bundle.feeds)
    found = TvmRunner().prepare(bundle.graph())(bundle.feeds)
    for a, b, step in zip(found, expected, (*(1 for _ in ROUNDINGS), 4 / 255), strict=True):
        np.testing.assert_allclose(a.astype(float), b.astype(float), atol=1.01 * step)
        assert np.mean(np.isclose(a, b)) > 0.98, "sums round differently beside a tie alone"


def test_whole_numbers_are_exact() -> None:
    """At ties and beside them, for float32."""
    bundle = Bundle()
    ties = (np.arange(-9, 10) / 2).astype(np.float32)
    beside = [np.nextafter(ties, np.float32(end)) for end in (-20, 20)]
    x = bundle.input(np.concatenate([ties, *beside, ANYWHERE, [2**23 + 1, -(2**24)]]).astype(np.float32))
    for name in ("floor", "ceil", "trunc", "round", "rint", "round_half_even", "sign"):
        bundle.add(name, x)
    bundle.check()


def test_functions_of_positive_numbers() -> None:
    bundle = Bundle()
    x = bundle.input(POSITIVE)
    for name in ("log", "sqrt", "rsqrt", "reciprocal"):
        bundle.add(name, x)
    bundle.add("_power_scalar", bundle.input(POSITIVE[:301]), scalar=1.5)
    bundle.add("_power_scalar", bundle.input(POSITIVE[10:301]), scalar=-2)
    bundle.check(tolerance=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_integer_functions_are_exact(dtype: str) -> None:
    bundle = Bundle()
    info = np.iinfo(dtype)
    x = bundle.input(np.concatenate([[info.min, info.max, 0, 1], bundle.integers((60,), dtype)]).astype(dtype))
    for name in ("abs", "negative", "square"):
        bundle.add(name, x)
    bundle.check()


def test_regions() -> None:
    bundle = Bundle()
    x = bundle.input(bundle.floats(3, 4, 50))
    bundle.add(
        "elementwise_region",
        x,
        expression="elemwise_mul(_mul_scalar(x, scalar=0.5), _plus_scalar(tanh(_mul_scalar(elemwise_add(x, "
        "_mul_scalar(elemwise_mul(x, square(x)), scalar=0.044715)), scalar=0.7978845608)), scalar=1))",
    )
    bundle.add("elementwise_region", x, expression="broadcast_div(x, _plus_scalar(exp(negative(x)), scalar=1))")
    bundle.add("elementwise_region", x, expression="clip(LeakyReLU(x, act_type=elu), a_min=-0.5, a_max=1.5)")
    bundle.add("elementwise_region", x, expression="x")
    hidden = bundle.hidden(
        "elementwise_region", bundle.hidden("relu", x), expression="square(_plus_scalar(x, scalar=1))"
    )
    bundle.add("_mul_scalar", hidden, scalar=0.5)
    bundle.check(tolerance=1e-5)


def test_regions_of_the_largest_size() -> None:
    bundle = Bundle()
    x = bundle.input(bundle.floats(2, 30))
    deep = "x"
    for _ in range(MAX_OPERATORS // 2):
        deep = f"tanh(_mul_scalar({deep}, scalar=1.25))"
    bundle.add("elementwise_region", x, expression=deep)
    wide = "x"
    for _ in range(4):
        wide = f"elemwise_mul(tanh({wide}), _plus_scalar({wide}, scalar=0.5))"
    bundle.add("elementwise_region", x, expression=wide)
    bundle.check(tolerance=1e-5)


@pytest.mark.parametrize(
    "expression",
    [
        "clip(x, a_min=0.5, a_max=0.5)",
        "elemwise_sub(x, x)",
        "sigmoid(_mul_scalar(x, scalar=0))",
        "elemwise_mul(sigmoid(clip(x, a_min=0.5, a_max=0.5)), x)",
        "floor(_power_scalar(x, scalar=0))",
    ],
)
def test_regions_of_which_a_part_is_constant(expression: str) -> None:
    """TVM may see that; a variable that holds such a part must do no harm."""
    bundle = Bundle()
    x, weight = bundle.input(bundle.floats(1, 3, 6, 7)), bundle.parameter(bundle.floats(5, 3, 3, 3))
    product = bundle.hidden("Convolution", x, weight, kernel=(3, 3), num_filter=5, no_bias=True)
    for source in (x, product):
        bundle.add("elementwise_region", source, expression=expression)
    bundle.check(tolerance=1e-5)


@pytest.mark.parametrize("channels", [5, 16])
def test_short_regions_are_computed_with_what_they_read(channels: int) -> None:
    """And those in which two operators repeat their input after it."""
    bundle = Bundle()
    x = bundle.input(bundle.floats(1, 3, 6, 7))
    weight = bundle.parameter(bundle.floats(channels, 3, 3, 3))
    functions = ("abs", "erf", "softsign", "silu", "hard_swish", "mish", "hard_sigmoid", "floor", "sign", "square")
    short = [f"elemwise_mul({name}(x), _minus_scalar(x, scalar=0.5))" for name in functions]
    short += [
        "broadcast_div(x, _plus_scalar(exp(negative(x)), scalar=1))",
        "elemwise_add(clip(x, a_min=-0.5, a_max=1.5), _maximum_scalar(relu(x), scalar=0.25))",
        "elemwise_sub(_rminus_scalar(x, scalar=1), elemwise_mul(x, _mul_scalar(x, scalar=0.5)))",
        "elemwise_mul(sigmoid(x), elemwise_add(sigmoid(x), x))",
        "square(LeakyReLU(x, act_type=elu))",
    ]
    others = ["tanh(tanh(x))", "square(LeakyReLU(mish(x)))"]
    for expression in [*short, *others]:
        product = bundle.hidden("Convolution", x, weight, kernel=(3, 3), num_filter=channels, no_bias=True)
        region = bundle.hidden("elementwise_region", product, expression=expression)
        bundle.add("_mul_scalar", region, scalar=0.5)
    regions = find_regions(bundle.graph())
    assert [len(region.symbols) for region in regions if len(region.symbols) > 2] == [3] * len(short)
    assert len(regions) == len(short) + 2 * len(others)
    bundle.check(tolerance=1e-4)


@pytest.mark.parametrize(
    ("act_type", "slopes"),
    [*((each, 0) for each in ("leaky", "elu", "selu", "gelu", "gelu_tanh")), ("prelu", 1), ("prelu", 5)],
)
def test_activations_are_computed_with_what_they_read(act_type: str, slopes: int) -> None:
    bundle = Bundle()
    x, weight = bundle.input(bundle.floats(2, 3, 6, 7)), bundle.parameter(bundle.floats(5, 3, 3, 3))
    product = bundle.hidden("Convolution", x, weight, kernel=(3, 3), num_filter=5, no_bias=True)
    gamma = [bundle.parameter(bundle.floats(slopes))] if slopes else []
    bundle.add("LeakyReLU", product, *gamma, act_type=act_type)
    assert len(find_regions(bundle.graph())) == 1
    bundle.check(tolerance=1e-5)


@pytest.mark.parametrize("channels", [1, 5])
def test_roundings_are_computed_with_what_they_read(channels: int) -> None:
    bundle = Bundle()
    x = bundle.input(bundle.floats(1, 3, 6, 7))
    product = bundle.hidden(
        "Convolution", x, bundle.parameter(bundle.floats(5, 3, 1, 1)), kernel=(1, 1), num_filter=5, no_bias=True
    )
    steps = 0.125 * 2.0 ** np.arange(channels)
    grid = np.stack([1 / steps, np.full(channels, -8.0), np.full(channels, 7.0), steps]).astype(np.float32)
    rounded = bundle.add("round_to_grid", bundle.hidden("relu", product), bundle.input(grid))
    (region,) = find_regions(bundle.graph())
    assert region.symbols[-1] is rounded
    (found,) = TvmRunner().prepare(bundle.graph())(bundle.feeds)
    scaled = found * grid[0][:, None, None]
    np.testing.assert_array_equal(scaled, np.rint(scaled))
    (wanted,) = bundle.graph().evaluate(bundle.feeds)
    np.testing.assert_allclose(found, wanted, atol=steps.max(), rtol=0)
    assert np.mean(found == wanted) > 0.95, "sums round differently beside a tie alone"
