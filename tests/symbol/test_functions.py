"""Functions of one argument: values against Python's math in high precision, bounds against dense samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from applied import infer, run

from mrt.errors import GraphError
from mrt.symbol import Interval, Operator, TensorType
from mrt.symbol.operators.activation import LeakyReLU, Sigmoid, Tanh
from mrt.symbol.operators.finite import IsInf, IsNan
from mrt.symbol.operators.functions import (
    Abs,
    Ceil,
    Erf,
    Exp,
    Floor,
    HardSigmoid,
    HardSwish,
    Log,
    Mish,
    Negative,
    PowerScalar,
    Reciprocal,
    Rint,
    Round,
    RoundHalfEven,
    Rsqrt,
    Sign,
    Silu,
    Softrelu,
    Softsign,
    Sqrt,
    Square,
    Trunc,
)
from mrt.symbol.operators.hyperbolic import Arccos, Arccosh, Arcsin, Arcsinh, Arctan, Arctanh, Cosh, Sinh
from mrt.symbol.operators.periodic import Cos, ModScalar, Sin, Tan


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def _elu(x: float, slope: float) -> float:
    return x if x > 0 else slope * math.expm1(x)


def _gelu_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


ANYWHERE: list[tuple[Operator, Callable[[float], float]]] = [
    (Exp(), math.exp),
    (Square(), lambda x: x * x),
    (Abs(), abs),
    (Negative(), lambda x: -x),
    (Cos(), math.cos),
    (Sin(), math.sin),
    (Arctan(), math.atan),
    (Arcsinh(), math.asinh),
    (Sinh(), math.sinh),
    (Cosh(), math.cosh),
    (Erf(), math.erf),
    (Tanh(), math.tanh),
    (Sigmoid(), _sigmoid),
    (Softsign(), lambda x: x / (1 + abs(x))),
    (HardSigmoid(), lambda x: min(max(0.2 * x + 0.5, 0), 1)),
    (HardSigmoid(alpha=-0.7, beta=0.1), lambda x: min(max(-0.7 * x + 0.1, 0), 1)),
    (HardSigmoid(alpha=0.0), lambda x: 0.5),
    (Floor(), math.floor),
    (Ceil(), math.ceil),
    (Trunc(), math.trunc),
    (Round(), lambda x: math.copysign(math.floor(Fraction(abs(x)) + Fraction(1, 2)), x)),
    (Rint(), lambda x: math.ceil(Fraction(x) - Fraction(1, 2))),
    (RoundHalfEven(), lambda x: round(Fraction(x))),
    (Sign(), lambda x: (x > 0) - (x < 0)),
    (Softrelu(), _softplus),
    (Silu(), lambda x: x * _sigmoid(x)),
    (HardSwish(), lambda x: x * min(max(x + 3, 0), 6) / 6),
    (Mish(), lambda x: x * math.tanh(_softplus(x))),
    (PowerScalar(2), lambda x: x**2),
    (PowerScalar(3), lambda x: x**3),
    (PowerScalar(0), lambda x: 1.0),
    (LeakyReLU(act_type="elu", slope=0.5), lambda x: _elu(x, 0.5)),
    (LeakyReLU(act_type="elu", slope=-0.5), lambda x: _elu(x, -0.5)),
    (LeakyReLU(act_type="selu"), lambda x: 1.0507009873554805 * _elu(x, 1.6732632423543772)),
    (LeakyReLU(act_type="gelu"), lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2))),
    (LeakyReLU(act_type="gelu_tanh"), _gelu_tanh),
]
POSITIVE: list[tuple[Operator, Callable[[float], float]]] = [
    (Log(), math.log),
    (Sqrt(), math.sqrt),
    (Rsqrt(), lambda x: 1 / math.sqrt(x)),
    (Reciprocal(), lambda x: 1 / x),
    (PowerScalar(2.5), lambda x: x**2.5),
    (PowerScalar(-1), lambda x: 1 / x),
    (PowerScalar(-2), lambda x: x**-2),
    (PowerScalar(-0.5), lambda x: x**-0.5),
]
ALL = [*ANYWHERE, *POSITIVE]


def named(case: object) -> str:
    return f"{case.op}-{case.attributes()}" if isinstance(case, Operator) else ""


def samples(operator: Operator) -> np.ndarray:
    points = np.concatenate([np.linspace(-6, 6, 97), [-30.0, 30.0, 1e-9, -1e-9]])
    return points if operator in [case[0] for case in ANYWHERE] else np.abs(points) + 1e-3


@pytest.mark.parametrize(("operator", "function"), ALL, ids=named)
def test_values(operator: Operator, function: Callable[[float], float]) -> None:
    x = samples(operator)
    expected = [function(float(v)) for v in x]
    np.testing.assert_allclose(operator.evaluate(x), expected, rtol=1e-12, atol=1e-15)
    assert run(operator, x.astype(np.float32)).dtype == np.float32


@pytest.mark.parametrize(("operator", "function"), ALL, ids=named)
def test_bounds_are_those_of_dense_samples(operator: Operator, function: Callable[[float], float]) -> None:
    """Sound, and no wider than what is reached (of those functions whose bounds claim to be exact)."""
    exact = not (isinstance(operator, LeakyReLU) and operator.act_type in ("elu", "selu"))
    ends = sorted({*samples(operator)[::9], *samples(operator)[:1]})
    for lo in ends:
        for hi in [end for end in ends if end >= lo]:
            bounds = operator.bounds(Interval.of(lo, hi, (1,)))
            reached = operator.evaluate(np.append(np.linspace(lo, hi, 2001), np.clip(0.0, lo, hi)))
            rounding = 1e-12 * (1 + np.abs(reached).max())
            assert bounds.min <= reached.min() + rounding and reached.max() <= bounds.max + rounding
            if exact:
                slack = 1e-4 * (1 + np.abs(reached).max())
                assert bounds.min >= reached.min() - slack and bounds.max <= reached.max() + slack


ENDS = [-np.inf, -1e300, -1e30, -3.0, -1e-300, 0.0, 1e-300, 2.0, 1e30, 1e300, np.inf]


@pytest.mark.parametrize("operator", [case[0] for case in ALL], ids=named)
def test_bounds_of_extreme_intervals(operator: Operator) -> None:
    for lo in ENDS:
        for hi in [end for end in ENDS if end >= lo]:
            bounds = operator.bounds(Interval.of(lo, hi, (2, 1)))
            assert not np.isnan(bounds.lo).any() and not np.isnan(bounds.hi).any(), (lo, hi)
            assert bounds.min <= bounds.max and bounds.shape == (2, 1)
            inner = np.array([end for end in ENDS if lo <= end <= hi and np.isfinite(end)])
            with np.errstate(all="ignore"):
                value = operator.evaluate(inner)
            value = value[~np.isnan(value)]
            assert (value >= bounds.min - 1e-12).all() and (value <= bounds.max + 1e-12).all()


@pytest.mark.parametrize("operator", [case[0] for case in ALL], ids=named)
def test_extreme_values_are_no_nan_within_the_domain(operator: Operator) -> None:
    x = np.array([0.0, 1e-300, 1e30, 1e300, np.inf])
    x = x if operator in [case[0] for case in POSITIVE] else np.concatenate([x, -x])
    x = x[np.isfinite(x)] if isinstance(operator, (Cos, Sin)) else x
    with np.errstate(over="ignore"):
        assert not np.isnan(operator.evaluate(x)).any()


def test_values_outside_the_domain() -> None:
    x = np.array([-1.0, 0.0])
    np.testing.assert_array_equal(Log().evaluate(x), [np.nan, -np.inf])
    np.testing.assert_array_equal(Sqrt().evaluate(x), [np.nan, 0.0])
    np.testing.assert_array_equal(Rsqrt().evaluate(x), [np.nan, np.inf])
    np.testing.assert_array_equal(PowerScalar(0.5).evaluate(x), [np.nan, 0.0])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_integers_are_exact(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = np.array([info.min, info.min + 1, 0, 1, info.max], dtype)
    exact = [int(v) for v in x]
    for operator, expected in (
        (Abs(), [abs(v) for v in exact]),
        (Negative(), [-v for v in exact]),
        (Square(), [v * v for v in exact]),
    ):
        found = run(operator, x)
        assert found.dtype == np.int32 and found.tolist() == expected


@pytest.mark.parametrize("operator", [Floor(), Ceil(), Trunc(), Round(), Rint(), RoundHalfEven(), Sign()], ids=named)
def test_whole_numbers_at_ties_and_beside_them(operator: Operator) -> None:
    """What is nearest to a half on either side, in float64, is told from the half."""
    ties = np.arange(-7, 8) / 2
    x = np.concatenate([np.nextafter(ties, -9), ties, np.nextafter(ties, 9), [2.0**52 + 1, -(2.0**53)]])
    (function,) = [function for known, function in ANYWHERE if known == operator]
    np.testing.assert_array_equal(operator.evaluate(x), [function(float(v)) for v in x])


NARROW: list[tuple[Operator, Callable[[float], float], tuple[float, float]]] = [
    (Tan(), math.tan, (-1.5, 1.5)),
    (Arcsin(), math.asin, (-1.0, 1.0)),
    (Arccos(), math.acos, (-1.0, 1.0)),
    (Arccosh(), math.acosh, (1.0, 9.0)),
    (Arctanh(), math.atanh, (-0.99, 0.99)),
    (ModScalar(2.5, truncates=True), lambda x: math.fmod(x, 2.5), (-9.0, 9.0)),
    (ModScalar(2.5), lambda x: float(Fraction(x) % Fraction(2.5)), (-9.0, 9.0)),
    (ModScalar(-2.5), lambda x: float(Fraction(x) % Fraction(-2.5)), (-9.0, 9.0)),
]


@pytest.mark.parametrize(("operator", "function", "domain"), NARROW, ids=named)
def test_functions_of_a_domain(
    operator: Operator, function: Callable[[float], float], domain: tuple[float, float]
) -> None:
    """Values, and bounds of intervals within the domain and beyond it."""
    x = np.linspace(*domain, 97)
    np.testing.assert_allclose(operator.evaluate(x), [function(float(v)) for v in x], rtol=1e-12, atol=1e-15)
    for lo in [-50.0, *x[::8]]:
        for hi in [end for end in [*x[::8], 50.0] if end >= lo]:
            bounds = operator.bounds(Interval.of(lo, hi, (1,)))
            inner = x[(lo <= x) & (x <= hi)]
            reached = operator.evaluate(inner)
            assert bounds.min <= bounds.max and (bounds.min <= reached + 1e-12).all()
            assert (reached <= bounds.max + 1e-12).all()
            if len(inner) and (lo, hi) == (inner[0], inner[-1]) and not isinstance(operator, ModScalar):
                assert (bounds.min, bounds.max) == pytest.approx((reached.min(), reached.max()))


def test_numbers_that_are_not_finite_are_told() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, 1e300])
    assert IsNan().evaluate(x).tolist() == [1, 0, 0, 0, 0]
    assert IsInf().evaluate(x).tolist() == [0, 1, 1, 0, 0]
    assert IsInf(negative=False).evaluate(x).tolist() == [0, 1, 0, 0, 0]
    for operator in (IsNan(), IsInf()):
        bounds = operator.bounds(Interval.of(np.array([-3.0, 0.0]), np.array([2.0, np.inf]), (2,)))
        assert bounds.lo.tolist() == [0, 0] and bounds.hi.tolist() == [0, 1]


def test_bounds_of_a_tangent_across_a_pole_are_infinite() -> None:
    bounds = Tan().bounds(Interval.of(np.array([1.0, 1.6]), np.array([2.0, 4.7]), (2,)))
    assert bounds.lo.tolist() == [-np.inf, math.tan(1.6)] and bounds.hi.tolist() == [np.inf, math.tan(4.7)]


def test_remainders_within_one_period_are_bounded_by_their_ends() -> None:
    bounds = ModScalar(4.0).bounds(Interval.of(np.array([5.0, 5.0]), np.array([7.0, 8.5]), (2,)))
    assert bounds.lo.tolist() == [1.0, 0.0] and bounds.hi.tolist() == [3.0, 4.0]
    with pytest.raises(GraphError, match="divisor other than 0"):
        ModScalar(0.0)


def test_bounds_of_a_cosine_are_what_it_reaches() -> None:
    """To float64, whether an interval holds a half turn or not; those of several are drawn, too."""
    rng, turns = np.random.default_rng(0), np.pi * np.arange(-13, 14)
    for lo, length in zip(rng.uniform(-30, 30, 400), rng.choice([0.0, 0.01, 1.0, 3.0, 7.0], 400), strict=True):
        bounds = Cos().bounds(Interval.of(lo, lo + length, (1,)))
        held = turns[(turns > lo) & (turns < lo + length)]
        reached = np.cos(np.r_[lo, lo + length, held])
        assert bounds.min == pytest.approx(reached.min(), abs=1e-9) and bounds.min <= reached.min()
        assert bounds.max == pytest.approx(reached.max(), abs=1e-9) and bounds.max >= reached.max()


@pytest.mark.parametrize(
    "operator", [Exp(), Log(), Erf(), Silu(), PowerScalar(2), LeakyReLU(act_type="gelu")], ids=named
)
def test_integers_have_no_form(operator: Operator) -> None:
    with pytest.raises(GraphError, match="no integer form"):
        infer(operator, TensorType((3,), "int8"))
