"""Elementwise functions of one argument beside the activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from operator import mul

from tvm import te, tirx

from mrt.backend.compute import Kind, compute, record
from mrt.backend.expressions import Expression, Tensor, bind, constant, dtype_of
from mrt.backend.kernels import transcendental
from mrt.backend.stages import elementwise
from mrt.symbol import Symbol
from mrt.symbol.operators.functions import HardSigmoid, PowerScalar

MOST_FACTORS = 8
"""Whole powers up to this one are computed as products."""


def number(value: float, like: Expression) -> Expression:
    """`value` in the dtype of an expression."""
    return constant(value, dtype_of(like))


def function(symbol: Symbol, data: Tensor, body: Callable[[Expression], Expression]) -> Tensor:
    """The stage of a function of one argument, which `body` may read many times."""
    return elementwise(symbol, data, body=lambda x: bind(x.astype(symbol.dtype), body))


@compute("exp", kind=Kind.ELEMENTWISE, repeats=True)
def exp(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, transcendental.exp)


@compute("log", kind=Kind.ELEMENTWISE)
def log(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, te.log)


@compute("sqrt", kind=Kind.ELEMENTWISE)
def sqrt(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, te.sqrt)


@compute("rsqrt", kind=Kind.ELEMENTWISE)
def rsqrt(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, lambda x: number(1, x) / te.sqrt(x))


@compute("square", kind=Kind.ELEMENTWISE)
def square(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, lambda v: v * v)


@compute("abs", kind=Kind.ELEMENTWISE)
def absolute(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, lambda v: te.max(v, -v))


@compute("negative", kind=Kind.ELEMENTWISE)
def negative(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, lambda x: -x)


@compute("reciprocal", kind=Kind.ELEMENTWISE)
def reciprocal(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, lambda x: number(1, x) / x)


@compute("floor", kind=Kind.ELEMENTWISE)
def floor(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, te.floor)


@compute("ceil", kind=Kind.ELEMENTWISE)
def ceil(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, te.ceil)


@compute("trunc", kind=Kind.ELEMENTWISE)
def trunc(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, te.trunc)


@compute("round", kind=Kind.ELEMENTWISE)
def round_half_away(symbol: Symbol, data: Tensor) -> Tensor:
    def body(x: Expression) -> Expression:
        whole = te.trunc(x)
        fraction = x - whole
        up = tirx.Select(fraction >= number(0.5, x), number(1, x), number(0, x))
        return whole + tirx.Select(fraction <= number(-0.5, x), number(-1, x), up)

    return function(symbol, data, body)


@compute("rint", kind=Kind.ELEMENTWISE)
def round_half_down(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, lambda x: tirx.Select(x - te.floor(x) <= te.ceil(x) - x, te.floor(x), te.ceil(x)))


@compute("round_half_even", kind=Kind.ELEMENTWISE)
def round_half_even(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, tirx.nearbyint)


@compute("sign", kind=Kind.ELEMENTWISE)
def sign(symbol: Symbol, data: Tensor) -> Tensor:
    def body(x: Expression) -> Expression:
        zero = number(0, x)
        return tirx.Select(x > zero, number(1, x), tirx.Select(x < zero, number(-1, x), zero))

    return function(symbol, data, body)


@compute("erf", kind=Kind.ELEMENTWISE, repeats=True)
def erf(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, transcendental.erf)


@compute("softsign", kind=Kind.ELEMENTWISE)
def softsign(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, lambda v: v / (number(1, v) + te.max(v, -v)))


@compute("hard_sigmoid", kind=Kind.ELEMENTWISE)
def hard_sigmoid(symbol: Symbol, data: Tensor) -> Tensor:
    operator = record(symbol, HardSigmoid)
    return function(symbol, data, lambda x: ramp(x, operator.alpha, operator.beta))


def ramp(x: Expression, slope: float, offset: float) -> Expression:
    """slope * x + offset limited to [0, 1]."""
    return te.min(te.max(x * number(slope, x) + number(offset, x), number(0, x)), number(1, x))


@compute("softrelu", kind=Kind.ELEMENTWISE)
def softrelu(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, softplus)


def softplus(x: Expression) -> Expression:
    """log(1 + exp(x)) as max(x, 0) + log(1 + exp(-|x|)), which does not overflow; computed in float64."""
    wide = x.astype("float64")
    one = constant(1, "float64")
    value = te.max(wide, constant(0, "float64")) + te.log(one + te.exp(te.min(wide, -wide)))
    return value.astype(dtype_of(x))


@compute("silu", kind=Kind.ELEMENTWISE, repeats=True)
def silu(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, lambda v: v * transcendental.sigmoid(v))


@compute("hard_swish", kind=Kind.ELEMENTWISE)
def hard_swish(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, lambda v: v * ramp(v, 1 / 6, 0.5))


@compute("mish", kind=Kind.ELEMENTWISE, repeats=True)
def mish(symbol: Symbol, data: Tensor) -> Tensor:
    return function(symbol, data, lambda v: v * transcendental.tanh(softplus(v)))


@compute("_power_scalar", kind=Kind.ELEMENTWISE)
def power_scalar(symbol: Symbol, data: Tensor) -> Tensor:
    """Small whole powers are products."""
    exponent = record(symbol, PowerScalar).scalar
    if exponent.is_integer() and 1 <= exponent <= MOST_FACTORS:
        factors = int(exponent)
        return function(symbol, data, lambda v: reduce(mul, [v] * factors))
    return function(symbol, data, lambda x: te.power(x, number(exponent, x)))


def elu(x: Expression, slope: float) -> Expression:
    """x where x > 0, else slope * (exp(x) - 1), which is computed in float64: near 0 it is a small difference."""
    zero = number(0, x)
    below = te.exp(te.min(x, zero).astype("float64")) - constant(1, "float64")
    return tirx.Select(x > zero, x, (below * constant(slope, "float64")).astype(dtype_of(x)))


def gelu(x: Expression) -> Expression:
    """x * (1 + erf(x / sqrt 2)) / 2."""
    return x * (number(0.5, x) + number(0.5, x) * transcendental.erf(x * number(math.sqrt(0.5), x)))


def gelu_tanh(x: Expression, cubic: float) -> Expression:
    """x * (1 + tanh(sqrt(2 / pi) (x + cubic x^3))) / 2."""
    inner = number(math.sqrt(2 / math.pi), x) * (x + number(cubic, x) * x * x * x)
    return x * (number(0.5, x) + number(0.5, x) * transcendental.tanh(inner))
