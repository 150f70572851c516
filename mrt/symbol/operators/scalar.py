"""Arithmetic of a tensor and a number held in an attribute."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval, add, multiply, subtract
from mrt.symbol.operation import Operation
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._checks import require_float
from mrt.symbol.operators._intervals import added, product, subtracted
from mrt.symbol.operators.broadcast import quotient
from mrt.symbol.operators.functions import FloatFunction
from mrt.symbol.types import TensorType, arithmetic_dtype


class WithNumber(Operator):
    """Base of operators of a tensor and a number, which stands on the right of the operation or on its left.

    The subclasses repeat the field, since a dataclass declares its own.
    """

    scalar: float
    number_first: ClassVar[bool] = False

    ignored = frozenset({"is_int"})
    is_elementwise = True


class _Arithmetic(WithNumber):
    """What arithmetic with a number shares. Integers give int32, which must hold the number too."""

    expression_arity = 1

    def infer(self, x: TensorType) -> TensorType:
        dtype = arithmetic_dtype(x)
        if x.is_integer:
            info = np.iinfo(dtype)
            if not (float(self.scalar).is_integer() and info.min <= self.scalar <= info.max):
                raise GraphError(f"scalar {self.scalar} meets {x}; an integer that {dtype} holds is needed")
        return x.with_dtype(dtype)


def _like(x: Array, scalar: float) -> Array:
    """The scalar in the kind of `x`, so that integers stay exact."""
    return np.asarray(float(scalar) if x.dtype.kind == "f" else int(scalar))


def _point(x: Interval, scalar: float) -> Interval:
    value = _like(x.lo, scalar)
    return Interval.of(value, value, x.shape)


@operator("_plus_scalar", "_PlusScalar")
class PlusScalar(_Arithmetic):
    """data + scalar."""

    operation = Operation.ADD
    exact_in_integers = True

    scalar: float

    def is_identity(self, *inputs: TensorType) -> bool:
        return self.scalar == 0

    def evaluate(self, x: Array) -> Array:
        return add(x, _like(x, self.scalar))

    def bounds(self, x: Interval) -> Interval:
        return added(x, _point(x, self.scalar), x.shape)


@operator("_minus_scalar", "_MinusScalar")
class MinusScalar(_Arithmetic):
    """data - scalar."""

    operation = Operation.SUBTRACT
    exact_in_integers = True

    scalar: float

    def is_identity(self, *inputs: TensorType) -> bool:
        return self.scalar == 0

    def evaluate(self, x: Array) -> Array:
        return subtract(x, _like(x, self.scalar))

    def bounds(self, x: Interval) -> Interval:
        return subtracted(x, _point(x, self.scalar), x.shape)


@operator("_rminus_scalar", "_RMinusScalar")
class RMinusScalar(_Arithmetic):
    """scalar - data."""

    operation = Operation.SUBTRACT
    number_first = True
    exact_in_integers = True

    scalar: float

    def evaluate(self, x: Array) -> Array:
        return subtract(_like(x, self.scalar), x)

    def bounds(self, x: Interval) -> Interval:
        return subtracted(_point(x, self.scalar), x, x.shape)


@operator("_mul_scalar", "_MulScalar")
class MulScalar(_Arithmetic):
    """data * scalar."""

    operation = Operation.MULTIPLY
    exact_in_integers = True

    scalar: float

    def is_identity(self, *inputs: TensorType) -> bool:
        return self.scalar == 1

    def homogeneous_in(self, inputs: int) -> tuple[int, ...]:
        return (0,)

    def evaluate(self, x: Array) -> Array:
        return multiply(x, _like(x, self.scalar))

    def bounds(self, x: Interval) -> Interval:
        return product(x, _point(x, self.scalar), x.shape)


@operator("_div_scalar", "_DivScalar")
class DivScalar(_Arithmetic):
    """data / scalar. Float only."""

    operation = Operation.DIVIDE
    exact_in_integers = True

    scalar: float

    def infer(self, x: TensorType) -> TensorType:
        return require_float(x)

    def is_identity(self, *inputs: TensorType) -> bool:
        return self.scalar == 1

    def homogeneous_in(self, inputs: int) -> tuple[int, ...]:
        return (0,)

    def evaluate(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            result: Array = x.astype(np.float64) / np.float64(self.scalar)
        return result

    def bounds(self, x: Interval) -> Interval:
        return quotient(x, _point(x, self.scalar), x.shape)


@operator("_rdiv_scalar", "_RDivScalar")
class RDivScalar(WithNumber, FloatFunction):
    """scalar / data. Float only."""

    operation = Operation.DIVIDE
    number_first = True

    scalar: float

    def evaluate(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            result: Array = np.float64(self.scalar) / x.astype(np.float64)
        return result

    def bounds(self, x: Interval) -> Interval:
        return quotient(_point(x, self.scalar), x, x.shape)
