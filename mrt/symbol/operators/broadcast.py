"""Sums, differences, products and quotients of tensors that broadcast to one shape by NumPy's rule."""

from __future__ import annotations

import numpy as np

from mrt.symbol.interval import Array, Interval, add, multiply, subtract
from mrt.symbol.operation import Operation
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._checks import require_float
from mrt.symbol.operators._intervals import added, output_shape, product, subtracted, unknown
from mrt.symbol.types import TensorType, arithmetic_dtype, broadcast_shape


class _Arithmetic(Operator):
    """What arithmetic of two tensors that broadcast shares. Integers give int32."""

    input_names = ("lhs", "rhs")
    is_elementwise = True

    def infer(self, lhs: TensorType, rhs: TensorType) -> TensorType:
        return TensorType(broadcast_shape(lhs, rhs), arithmetic_dtype(lhs, rhs))


@operator("broadcast_add", "broadcast_plus")
class BroadcastAdd(_Arithmetic):
    """lhs + rhs with broadcasting. Integers give int32."""

    attains_bounds = True
    operation = Operation.ADD
    exact_in_integers = True

    def homogeneous_in(self, inputs: int) -> tuple[int, ...]:
        return tuple(range(inputs))

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        return add(lhs, rhs)

    def bounds(self, lhs: Interval, rhs: Interval) -> Interval:
        return added(lhs, rhs, output_shape(self, lhs, rhs))


@operator("broadcast_sub", "broadcast_minus")
class BroadcastSub(_Arithmetic):
    """lhs - rhs with broadcasting. Integers give int32."""

    operation = Operation.SUBTRACT
    exact_in_integers = True

    def homogeneous_in(self, inputs: int) -> tuple[int, ...]:
        return tuple(range(inputs))

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        return subtract(lhs, rhs)

    def bounds(self, lhs: Interval, rhs: Interval) -> Interval:
        return subtracted(lhs, rhs, output_shape(self, lhs, rhs))


@operator("broadcast_mul")
class BroadcastMul(_Arithmetic):
    """lhs * rhs with broadcasting. Integers give int32."""

    operation = Operation.MULTIPLY

    def homogeneous_in(self, inputs: int) -> tuple[int, ...]:
        return (0,)

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        return multiply(lhs, rhs)

    def bounds(self, lhs: Interval, rhs: Interval) -> Interval:
        return product(lhs, rhs, output_shape(self, lhs, rhs))


@operator("broadcast_div")
class BroadcastDiv(_Arithmetic):
    """lhs / rhs with broadcasting. Float only; a division by 0 gives infinity or NaN."""

    operation = Operation.DIVIDE
    expression_arity = 2

    def infer(self, lhs: TensorType, rhs: TensorType) -> TensorType:
        return super().infer(require_float(lhs), require_float(rhs))

    def homogeneous_in(self, inputs: int) -> tuple[int, ...]:
        return (0,)

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        with np.errstate(all="ignore"):
            result: Array = lhs.astype(np.float64) / rhs.astype(np.float64)
        return result

    def bounds(self, lhs: Interval, rhs: Interval) -> Interval:
        return quotient(lhs, rhs, output_shape(self, lhs, rhs))


def quotient(x: Interval, y: Interval, shape: tuple[int, ...]) -> Interval:
    """Bounds of x / y; infinite where y may be 0, but of the sign that x and y say."""
    with np.errstate(all="ignore"):
        # The inverse of a denormal number overflows; x times the largest float is still less than x / y.
        most = np.finfo(np.float64).max
        least_inverse = np.minimum(1.0 / y.hi.astype(np.float64), most)
        inverse = Interval(least_inverse, np.maximum(1.0 / y.lo.astype(np.float64), -most), y.shape)
        away = (y.lo > 0) | (y.hi < 0)
    if not away.any():
        return _signed(x, y, unknown(shape))
    result = product(x, Interval(np.where(away, inverse.lo, 0.0), np.where(away, inverse.hi, 0.0), y.shape), shape)
    away = away.reshape((1,) * (len(shape) - away.ndim) + away.shape)
    bounds = Interval(np.where(away, result.lo, -np.inf), np.where(away, result.hi, np.inf), shape)
    return _signed(x, y, bounds)


def _signed(x: Interval, y: Interval, bounds: Interval) -> Interval:
    """`bounds` of x / y, at least 0 where x and y never are of different signs, at most 0 where never of the same.

    A divisor of 0 is a positive one: 1 / 0 is infinity.
    """
    same = (x.min >= 0 and y.min >= 0) or (x.max <= 0 and y.max < 0)
    different = (x.min >= 0 and y.max < 0) or (x.max <= 0 and y.min >= 0)
    lo = np.maximum(bounds.lo, 0.0) if same else bounds.lo
    hi = np.minimum(bounds.hi, 0.0) if different else bounds.hi
    return Interval(np.minimum(lo, hi), np.maximum(lo, hi), bounds.shape)
