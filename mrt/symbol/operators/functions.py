"""Elementwise functions of one argument beside the activations: exponentials, roots, powers and their like."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mrt.symbol.interval import Array, Interval, multiply, subtract
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._checks import require_float
from mrt.symbol.operators.broadcast import quotient
from mrt.symbol.types import TensorType, arithmetic_dtype

Function = Callable[[Array], Array]

_erf = np.frompyfunc(math.erf, 1, 1)


def real(x: Array) -> Array:
    """`x` as float64."""
    return np.asarray(x, np.float64)


def increasing(x: Interval, function: Function) -> Interval:
    """The image of float bounds under a non-decreasing function, whose warnings are of no interest."""
    with np.errstate(all="ignore"):
        return Interval(function(real(x.lo)), function(real(x.hi)), x.shape)


def decreasing(x: Interval, function: Function) -> Interval:
    """The image of float bounds under a non-increasing function."""
    with np.errstate(all="ignore"):
        return Interval(function(real(x.hi)), function(real(x.lo)), x.shape)


def valley(x: Interval, function: Function, bottom: float) -> Interval:
    """The image of float bounds under a function that falls until `bottom` and rises from there."""
    with np.errstate(all="ignore"):
        ends = function(real(x.lo)), function(real(x.hi))
        lowest = function(np.clip(bottom, real(x.lo), real(x.hi)))
    # `bottom` is rounded, and the function is flat there: the least value lies within a rounding of what is found.
    margin = np.where((real(x.lo) <= bottom) & (bottom <= real(x.hi)), 1e-12, 0.0)
    return Interval(np.minimum(np.minimum(*ends), lowest - margin), np.maximum(*ends), x.shape)


def erf(x: Array) -> Array:
    """The error function of float64 values."""
    return np.asarray(_erf(x)).astype(np.float64)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) of float64 values: by tanh, since exp(-x) overflows where x is very negative."""
    return np.asarray(0.5 * np.tanh(0.5 * x) + 0.5)


def gated(x: Array, gate: Array) -> Array:
    """x * gate, a gate of 0 closing infinity too."""
    with np.errstate(all="ignore"):
        return np.where(gate == 0, 0.0, x * gate)


class FloatFunction(Operator):
    """Base of the functions of one float tensor that integers compute by a look-up table."""

    is_elementwise = True
    expression_arity = 1

    def infer(self, x: TensorType) -> TensorType:
        return require_float(x)


@operator("exp")
class Exp(FloatFunction):
    """e to the power of x, elementwise. Float only."""

    def evaluate(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.exp(real(x))

    def bounds(self, x: Interval) -> Interval:
        return increasing(x, np.exp)


@operator("log")
class Log(FloatFunction):
    """The natural logarithm, elementwise: -infinity at 0, NaN below. Float only."""

    def evaluate(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.log(real(x))

    def bounds(self, x: Interval) -> Interval:
        return increasing(x, lambda v: np.log(np.maximum(v, 0)))


@operator("sqrt")
class Sqrt(FloatFunction):
    """The square root, elementwise; NaN below 0. Float only."""

    def evaluate(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.sqrt(real(x))

    def bounds(self, x: Interval) -> Interval:
        return increasing(x, lambda v: np.sqrt(np.maximum(v, 0)))


@operator("rsqrt")
class Rsqrt(FloatFunction):
    """1 / sqrt(x), elementwise: infinity at 0, NaN below. Float only."""

    def evaluate(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return 1.0 / np.sqrt(real(x))

    def bounds(self, x: Interval) -> Interval:
        return decreasing(x, lambda v: 1.0 / np.sqrt(np.maximum(v, 0)))


@operator("square")
class Square(Operator):
    """x * x, elementwise. Integers give int32."""

    is_elementwise = True
    expression_arity = 1

    def infer(self, x: TensorType) -> TensorType:
        return x.with_dtype(arithmetic_dtype(x))

    def evaluate(self, x: Array) -> Array:
        return multiply(x, x)

    def bounds(self, x: Interval) -> Interval:
        size = Abs().bounds(x)
        with np.errstate(over="ignore"):
            return size.map(lambda v: multiply(v, v))


@operator("abs")
class Abs(Operator):
    """|x|, elementwise. Integers give int32."""

    is_elementwise = True
    expression_arity = 1
    exact_in_integers = True

    def infer(self, x: TensorType) -> TensorType:
        return x.with_dtype(arithmetic_dtype(x))

    def evaluate(self, x: Array) -> Array:
        return np.asarray(np.abs(x if x.dtype.kind == "f" else x.astype(np.int64)))

    def bounds(self, x: Interval) -> Interval:
        return Interval(np.maximum(np.maximum(x.lo, -x.hi), 0), np.maximum(-x.lo, x.hi), x.shape)


@operator("negative")
class Negative(Operator):
    """-x, elementwise. Integers give int32."""

    is_elementwise = True
    expression_arity = 1
    exact_in_integers = True

    def infer(self, x: TensorType) -> TensorType:
        return x.with_dtype(arithmetic_dtype(x))

    def homogeneous_in(self, inputs: int) -> tuple[int, ...]:
        return (0,)

    def evaluate(self, x: Array) -> Array:
        return subtract(np.zeros_like(x), x)

    def bounds(self, x: Interval) -> Interval:
        return Interval(-x.hi, -x.lo, x.shape)


class _Step(FloatFunction):
    """What the functions that jump share: they never fall."""

    def bounds(self, x: Interval) -> Interval:
        return increasing(x, self.evaluate)


@operator("floor")
class Floor(_Step):
    """The largest whole number that is not above x, elementwise. Float only."""

    def evaluate(self, x: Array) -> Array:
        return np.floor(real(x))


@operator("ceil")
class Ceil(_Step):
    """The smallest whole number that is not below x, elementwise. Float only."""

    def evaluate(self, x: Array) -> Array:
        return np.ceil(real(x))


@operator("trunc", "fix")
class Trunc(_Step):
    """x without its fraction, elementwise. Float only."""

    def evaluate(self, x: Array) -> Array:
        return np.trunc(real(x))


@operator("round")
class Round(_Step):
    """The nearest whole number, halves away from zero, elementwise. Float only."""

    def evaluate(self, x: Array) -> Array:
        x = real(x)
        whole = np.trunc(x)
        with np.errstate(invalid="ignore"):
            # x + 1/2 would round up what is just below a half.
            return np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole)


@operator("rint")
class Rint(_Step):
    """The nearest whole number, halves to the one below, elementwise: what MXNet calls rint. Float only."""

    def evaluate(self, x: Array) -> Array:
        x = real(x)
        below, above = np.floor(x), np.ceil(x)
        with np.errstate(invalid="ignore"):
            return np.where(x - below <= above - x, below, above)


@operator("round_half_even")
class RoundHalfEven(_Step):
    """The nearest whole number, halves to the even one, elementwise: ONNX's Round, which MXNet lacks. Float only."""

    def evaluate(self, x: Array) -> Array:
        return np.rint(real(x))


@operator("sign")
class Sign(_Step):
    """-1, 0 or 1, as x is below, at or above 0, elementwise. Float only."""

    def evaluate(self, x: Array) -> Array:
        return np.sign(real(x))


@operator("reciprocal")
class Reciprocal(FloatFunction):
    """1 / x, elementwise; infinity at 0. Float only."""

    def evaluate(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return 1.0 / real(x)

    def bounds(self, x: Interval) -> Interval:
        return quotient(Interval.of(1.0, 1.0, x.shape), x, x.shape)


@operator("erf")
class Erf(FloatFunction):
    """The error function, elementwise. Float only."""

    def evaluate(self, x: Array) -> Array:
        return erf(real(x))

    def bounds(self, x: Interval) -> Interval:
        return increasing(x, erf)


@operator("softsign")
class Softsign(FloatFunction):
    """x / (1 + |x|), elementwise. Float only."""

    def evaluate(self, x: Array) -> Array:
        return _softsign(real(x))

    def bounds(self, x: Interval) -> Interval:
        return increasing(x, _softsign)


def _softsign(x: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.where(np.isinf(x), np.sign(x), x / (1.0 + np.abs(x)))


@operator("hard_sigmoid")
class HardSigmoid(FloatFunction):
    """min(max(alpha * x + beta, 0), 1), elementwise. Float only."""

    alpha: float = 0.2
    beta: float = 0.5

    def evaluate(self, x: Array) -> Array:
        return self._of(real(x))

    def bounds(self, x: Interval) -> Interval:
        return decreasing(x, self._of) if self.alpha < 0 else increasing(x, self._of)

    def _of(self, x: Array) -> Array:
        return np.clip((self.alpha * x if self.alpha else np.zeros_like(x)) + self.beta, 0.0, 1.0)


@operator("softrelu")
class Softrelu(FloatFunction):
    """log(1 + exp(x)), elementwise: MXNet's softrelu, elsewhere softplus. Float only."""

    def evaluate(self, x: Array) -> Array:
        return _softrelu(real(x))

    def bounds(self, x: Interval) -> Interval:
        return increasing(x, _softrelu)


def _softrelu(x: Array) -> Array:
    return np.asarray(np.logaddexp(0.0, x))


@operator("silu")
class Silu(FloatFunction):
    """x * sigmoid(x), elementwise: also called swish. Float only."""

    bottom = -1.278464542761074
    """Where the function is least."""

    def evaluate(self, x: Array) -> Array:
        return _silu(real(x))

    def bounds(self, x: Interval) -> Interval:
        return valley(x, _silu, self.bottom)


def _silu(x: Array) -> Array:
    return gated(x, sigmoid(x))


@operator("hard_swish")
class HardSwish(FloatFunction):
    """x * min(max(x / 6 + 1/2, 0), 1), elementwise. Float only."""

    bottom = -1.5
    """Where the function is least."""

    def evaluate(self, x: Array) -> Array:
        return _hard_swish(real(x))

    def bounds(self, x: Interval) -> Interval:
        return valley(x, _hard_swish, self.bottom)


def _hard_swish(x: Array) -> Array:
    return gated(x, np.clip(x / 6.0 + 0.5, 0.0, 1.0))


@operator("mish")
class Mish(FloatFunction):
    """x * tanh(log(1 + exp(x))), elementwise. Float only."""

    bottom = -1.1924312145154952
    """Where the function is least."""

    def evaluate(self, x: Array) -> Array:
        return _mish(real(x))

    def bounds(self, x: Interval) -> Interval:
        return valley(x, _mish, self.bottom)


def _mish(x: Array) -> Array:
    return gated(x, np.tanh(_softrelu(x)))


@operator("_power_scalar", "_PowerScalar")
class PowerScalar(FloatFunction):
    """x to the power of `scalar`, elementwise; NaN for negative x and a fractional power. Float only."""

    scalar: float

    ignored = frozenset({"is_int"})

    def evaluate(self, x: Array) -> Array:
        return self._of(real(x))

    def bounds(self, x: Interval) -> Interval:
        if self.scalar < 0:
            positive = PowerScalar(-self.scalar).bounds(x)
            result = quotient(Interval.of(1.0, 1.0, x.shape), positive, x.shape)
            return result if self.scalar % 2 == 1 else result.map(lambda v: np.maximum(v, 0))
        if self.scalar % 2 == 1:
            return increasing(x, self._of)
        if self.scalar % 2 == 0:
            return increasing(Abs().bounds(x), self._of)
        return increasing(x, lambda v: self._of(np.maximum(v, 0)))

    def _of(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.power(x, self.scalar)
