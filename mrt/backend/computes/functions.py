"""Elementwise functions of one argument other than activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from operator import mul

from tvm import te, tirx

from mrt.backend.kernels.generic import transcendental
from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import elementwise
from mrt.backend.tir.expressions import Expression, Tensor, bind, constant, dtype_of
from mrt.symbol import Operator, Symbol
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

Body = Callable[[Expression], Expression]

MOST_FACTORS = 8
"""Whole powers up to this one are computed as products."""


def number(value: float, like: Expression) -> Expression:
    """`value` in the dtype of an expression."""
    return constant(value, dtype_of(like))


def function(symbol: Symbol, data: Tensor, body: Body) -> Tensor:
    """An elementwise function whose `body` may read its argument many times."""
    return elementwise(symbol, data, body=lambda x: bind(x.astype(symbol.dtype), body))


def round_half_away(x: Expression) -> Expression:
    """The nearest whole number, of halves the one away from zero."""
    whole = te.trunc(x)
    fraction = x - whole
    up = tirx.Select(fraction >= number(0.5, x), number(1, x), number(0, x))
    return whole + tirx.Select(fraction <= number(-0.5, x), number(-1, x), up)


def sign(x: Expression) -> Expression:
    """-1, 0 or 1."""
    zero = number(0, x)
    return tirx.Select(x > zero, number(1, x), tirx.Select(x < zero, number(-1, x), zero))


@compute(HardSigmoid, kind=Kind.ELEMENTWISE)
def hard_sigmoid(symbol: Symbol[HardSigmoid], data: Tensor) -> Tensor:
    operator = symbol.operator
    return function(symbol, data, lambda x: ramp(x, operator.alpha, operator.beta))


def ramp(x: Expression, slope: float, offset: float) -> Expression:
    """slope * x + offset limited to [0, 1]."""
    return te.min(te.max(x * number(slope, x) + number(offset, x), number(0, x)), number(1, x))


def softplus(x: Expression) -> Expression:
    """log(1 + exp(x)) as max(x, 0) + log(1 + exp(-|x|)), which does not overflow; computed in float64."""
    wide = x.astype("float64")
    one = constant(1, "float64")
    value = te.max(wide, constant(0, "float64")) + te.log(one + te.exp(te.min(wide, -wide)))
    return value.astype(dtype_of(x))


@compute(PowerScalar, kind=Kind.ELEMENTWISE)
def power_scalar(symbol: Symbol[PowerScalar], data: Tensor) -> Tensor:
    """Small whole powers are products."""
    exponent = symbol.operator.scalar
    if exponent.is_integer() and 1 <= exponent <= MOST_FACTORS:
        factors = int(exponent)
        return function(symbol, data, lambda v: reduce(mul, [v] * factors))
    return function(symbol, data, lambda x: te.power(x, number(exponent, x)))


@compute(IsInf, kind=Kind.ELEMENTWISE)
def is_infinite(symbol: Symbol[IsInf], data: Tensor) -> Tensor:
    ends = [sign for sign, asked in ((1, symbol.operator.positive), (-1, symbol.operator.negative)) if asked]
    return function(symbol, data, lambda x: reduce(te.max, [_is(x, end * math.inf) for end in ends] or [number(0, x)]))


def _is(x: Expression, value: float) -> Expression:
    return tirx.Select(x == number(value, x), number(1, x), number(0, x))


def _is_nan(x: Expression) -> Expression:
    return tirx.Select(te.isnan(x), number(1, x), number(0, x))


@compute(ModScalar, kind=Kind.ELEMENTWISE)
def mod_scalar(symbol: Symbol[ModScalar], data: Tensor) -> Tensor:
    """x minus its whole multiple of the divisor, in float64, which holds the quotients of float32."""
    divisor = constant(symbol.operator.scalar, "float64")
    rounded = te.trunc if symbol.operator.truncates else te.floor

    def rest(x: Expression) -> Expression:
        return x - divisor * rounded(x / divisor)

    return function(symbol, data, lambda x: bind(x.astype("float64"), rest).astype(symbol.dtype))


def elu(x: Expression, slope: float) -> Expression:
    """x where x > 0, else slope * (exp(x) - 1), which is computed in float64: near 0 it is a small difference."""
    zero = number(0, x)
    below = te.exp(te.min(x, zero).astype("float64")) - constant(1, "float64")
    return tirx.Select(x > zero, x, (below * constant(slope, "float64")).astype(dtype_of(x)))


SMALL = 1e-4
"""Up to here sinh(x) is x in float32."""


def sinh(x: Expression) -> Expression:
    """(e^x - e^-x) / 2, computed in float64: near 0 it is a small difference."""
    half, wide = constant(0.5, "float64"), x.astype("float64")
    made = (half * te.exp(wide) - half * te.exp(-wide)).astype(dtype_of(x))
    return tirx.Select(te.max(x, -x) < number(SMALL, x), x, made)


def cosh(x: Expression) -> Expression:
    """(e^x + e^-x) / 2, in float64, which holds the powers where float32 holds their mean."""
    half, wide = constant(0.5, "float64"), x.astype("float64")
    return (half * te.exp(wide) + half * te.exp(-wide)).astype(dtype_of(x))


def gelu(x: Expression) -> Expression:
    """x * (1 + erf(x / sqrt 2)) / 2."""
    return x * (number(0.5, x) + number(0.5, x) * transcendental.erf(x * number(math.sqrt(0.5), x)))


def gelu_tanh(x: Expression, cubic: float) -> Expression:
    """x * (1 + tanh(sqrt(2 / pi) (x + cubic x^3))) / 2."""
    inner = number(math.sqrt(2 / math.pi), x) * (x + number(cubic, x) * x * x * x)
    return x * (number(0.5, x) + number(0.5, x) * transcendental.tanh(inner))


FUNCTIONS: Mapping[type[Operator], Body] = {
    Abs: lambda x: te.max(x, -x),
    Negative: lambda x: -x,
    Reciprocal: lambda x: number(1, x) / x,
    Square: lambda x: x * x,
    Sqrt: te.sqrt,
    Rsqrt: lambda x: number(1, x) / te.sqrt(x),
    Log: te.log,
    Cos: te.cos,
    Sin: te.sin,
    Tan: te.tan,
    Sinh: sinh,
    IsNan: _is_nan,
    Cosh: cosh,
    Arcsin: te.asin,
    Arccos: te.acos,
    Arctan: te.atan,
    Arcsinh: te.asinh,
    Arccosh: te.acosh,
    Arctanh: te.atanh,
    Floor: te.floor,
    Ceil: te.ceil,
    Trunc: te.trunc,
    Round: round_half_away,
    Rint: lambda x: tirx.Select(x - te.floor(x) <= te.ceil(x) - x, te.floor(x), te.ceil(x)),
    RoundHalfEven: tirx.nearbyint,
    Sign: sign,
    Softsign: lambda x: x / (number(1, x) + te.max(x, -x)),
    Softrelu: softplus,
    HardSwish: lambda x: x * ramp(x, 1 / 6, 0.5),
}
"""Functions without attributes, by record."""
LONG_FUNCTIONS: Mapping[type[Operator], Body] = {
    Exp: transcendental.exp,
    Erf: transcendental.erf,
    Silu: lambda x: x * transcendental.sigmoid(x),
    Mish: lambda x: x * transcendental.tanh(softplus(x)),
}
"""Those whose expressions have the argument in many places; see `compute`."""


def _register(record: type[Operator], body: Body, repeats_input: bool) -> None:
    @compute(record, kind=Kind.ELEMENTWISE, repeats_input=repeats_input)
    def of_argument(symbol: Symbol, data: Tensor) -> Tensor:
        return function(symbol, data, body)


for _record, _body in FUNCTIONS.items():
    _register(_record, _body, repeats_input=False)
for _record, _body in LONG_FUNCTIONS.items():
    _register(_record, _body, repeats_input=True)
