"""Sums, differences and products of tensors of one shape."""

from __future__ import annotations

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval, add, multiply, subtract
from mrt.symbol.operation import Operation
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._intervals import added, partial_sums, product, subtracted
from mrt.symbol.types import TensorType, arithmetic_dtype


def _of_one_shape(*inputs: TensorType) -> TensorType:
    if len({x.shape for x in inputs}) != 1:
        found = ", ".join(map(str, inputs))
        raise GraphError(f"shapes differ: {found}; equal ones are needed, or a broadcast_ operator")
    return inputs[0].with_dtype(arithmetic_dtype(*inputs))


class _Arithmetic(Operator):
    """What arithmetic of two tensors of one shape shares. Integers give int32."""

    input_names = ("lhs", "rhs")
    is_elementwise = True
    expression_arity = 2

    def infer(self, lhs: TensorType, rhs: TensorType) -> TensorType:
        return _of_one_shape(lhs, rhs)


@operator("elemwise_add", "_add", "_plus", "_Plus")
class ElemwiseAdd(_Arithmetic):
    """lhs + rhs, tensors of one shape. Integers give int32."""

    operation = Operation.ADD
    exact_in_integers = True

    def homogeneous_in(self, inputs: int) -> tuple[int, ...]:
        return tuple(range(inputs))

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        return add(lhs, rhs)

    def bounds(self, lhs: Interval, rhs: Interval) -> Interval:
        return added(lhs, rhs, lhs.shape)


@operator("elemwise_sub", "_sub", "_minus", "_Minus")
class ElemwiseSub(_Arithmetic):
    """lhs - rhs, tensors of one shape. Integers give int32."""

    operation = Operation.SUBTRACT
    exact_in_integers = True

    def homogeneous_in(self, inputs: int) -> tuple[int, ...]:
        return tuple(range(inputs))

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        return subtract(lhs, rhs)

    def bounds(self, lhs: Interval, rhs: Interval) -> Interval:
        return subtracted(lhs, rhs, lhs.shape)


@operator("elemwise_mul", "_mul", "_Mul")
class ElemwiseMul(_Arithmetic):
    """lhs * rhs, tensors of one shape. Integers give int32."""

    operation = Operation.MULTIPLY

    def homogeneous_in(self, inputs: int) -> tuple[int, ...]:
        return (0,)

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        return multiply(lhs, rhs)

    def bounds(self, lhs: Interval, rhs: Interval) -> Interval:
        return product(lhs, rhs, lhs.shape)


@operator("add_n", "ElementWiseSum")
class AddN(Operator):
    """The sum of one or more tensors of one shape. Integers give int32."""

    family = "add"

    ignored = frozenset({"num_args"})
    input_names = ("args",)
    is_elementwise = True
    exact_in_integers = True

    def infer(self, *args: TensorType) -> TensorType:
        if not args:
            raise GraphError("no inputs are given; at least one is needed")
        return _of_one_shape(*args)

    def is_identity(self, *inputs: TensorType) -> bool:
        return len(inputs) == 1

    def homogeneous_in(self, inputs: int) -> tuple[int, ...]:
        return tuple(range(inputs))

    def evaluate(self, *args: Array) -> Array:
        result = args[0]
        for x in args[1:]:
            result = add(result, x)
        return np.asarray(result)

    def bounds(self, *args: Interval) -> Interval:
        result = args[0]
        for x in args[1:]:
            result = added(result, x, x.shape)
        return result

    def intermediates(self, *args: Interval) -> tuple[Interval, ...]:
        return (self.bounds(*map(partial_sums, args)),)
