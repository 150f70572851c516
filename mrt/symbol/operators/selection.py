"""Operators that choose among values: by comparing them, by a condition, or by an index."""

from __future__ import annotations

import math
from math import prod
from typing import ClassVar

import numpy as np

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval
from mrt.symbol.operation import Operation
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._intervals import output_shape
from mrt.symbol.operators.reduce import Extreme
from mrt.symbol.operators.scalar import WithNumber
from mrt.symbol.types import TensorType, arithmetic_dtype, broadcast_shape, normalize_axis


@operator("min", "min_axis")
class Min(Extreme):
    """The smallest element over `axis` (all axes if none is named; all others with exclude)."""

    family = "min"

    axis: tuple[int, ...] | None = None
    keepdims: bool = False
    exclude: bool = False

    choose = np.minimum


class Place(Operator):
    """Base of argmax and argmin: the place of one element along `axis`, or in the flattened data.

    The subclasses repeat the fields, since a dataclass declares its own.
    """

    axis: int | None
    keepdims: bool

    def infer(self, x: TensorType) -> TensorType:
        if not self.length(x.shape):
            raise GraphError(f"data is {x}; there is nothing to choose from over axis {self.axis}")
        dtype = "int32" if x.is_integer else x.dtype
        if self.axis is None:
            return TensorType((1,) * x.rank if self.keepdims else (1,), dtype)
        axis = normalize_axis(self.axis, x.rank)
        return TensorType((*x.shape[:axis], *((1,) if self.keepdims else ()), *x.shape[axis + 1 :]), dtype)

    def bounds(self, x: Interval) -> Interval:
        highest = self.length(x.shape) - 1
        one: Array = np.ones((), x.lo.dtype)
        return Interval.of(0 * one, highest * one, output_shape(self, x))

    def batch_obstacle(self, x: TensorType) -> str:
        if self.axis is None:
            return "all axes are flattened"
        return "elements of axis 0 are compared" if normalize_axis(self.axis, x.rank) == 0 else ""

    def length(self, shape: tuple[int, ...]) -> int:
        """How many elements one is chosen from."""
        return prod(shape) if self.axis is None else shape[normalize_axis(self.axis, len(shape))]

    def _shaped(self, places: Array, shape: tuple[int, ...]) -> Array:
        return places.reshape(self.infer(TensorType(shape)).shape)


@operator("argmax")
class ArgMax(Place):
    """The place of the largest element along `axis`, the first of equal ones; int32 for integers, else floats."""

    axis: int | None = None
    keepdims: bool = False

    def evaluate(self, x: Array) -> Array:
        return self._shaped(np.asarray(np.argmax(x, axis=self.axis)), x.shape)


@operator("argmin")
class ArgMin(Place):
    """The place of the smallest element along `axis`, the first of equal ones; int32 for integers, else floats."""

    axis: int | None = None
    keepdims: bool = False

    def evaluate(self, x: Array) -> Array:
        return self._shaped(np.asarray(np.argmin(x, axis=self.axis)), x.shape)


def _one_dtype(*inputs: TensorType) -> str:
    """The dtype of a choice among values of these; integers must be of one."""
    dtypes = {x.dtype for x in inputs}
    if len(dtypes) == 1:
        return inputs[0].dtype
    if not all(x.is_float for x in inputs):
        raise GraphError(f"inputs are {', '.join(map(str, inputs))}; one dtype is needed: cast them")
    return arithmetic_dtype(*inputs)


class _OfTwo(Operator):
    """Base of the maxima and minima of two tensors. They keep the dtype."""

    choose: ClassVar[np.ufunc]

    is_elementwise = True
    input_names = ("lhs", "rhs")

    def homogeneous_in(self, inputs: int) -> tuple[int, ...]:
        return tuple(range(inputs))

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        return np.asarray(self.choose(lhs, rhs))

    def bounds(self, lhs: Interval, rhs: Interval) -> Interval:
        return Interval.of(self.choose(lhs.lo, rhs.lo), self.choose(lhs.hi, rhs.hi), output_shape(self, lhs, rhs))


class _OfOneShape(_OfTwo):
    def infer(self, lhs: TensorType, rhs: TensorType) -> TensorType:
        if lhs.shape != rhs.shape:
            raise GraphError(f"shapes differ: {lhs}, {rhs}; equal ones are needed, or a broadcast_ operator")
        return lhs.with_dtype(_one_dtype(lhs, rhs))


class _OfBroadcast(_OfTwo):
    def infer(self, lhs: TensorType, rhs: TensorType) -> TensorType:
        return TensorType(broadcast_shape(lhs, rhs), _one_dtype(lhs, rhs))


@operator("_maximum", "_Maximum")
class ElemwiseMaximum(_OfOneShape):
    """max(lhs, rhs), tensors of one shape."""

    family = "max"

    choose = np.maximum
    operation = Operation.MAXIMUM


@operator("_minimum", "_Minimum")
class ElemwiseMinimum(_OfOneShape):
    """min(lhs, rhs), tensors of one shape."""

    family = "min"

    choose = np.minimum
    operation = Operation.MINIMUM


@operator("broadcast_maximum")
class BroadcastMaximum(_OfBroadcast):
    """max(lhs, rhs) with broadcasting."""

    family = "max"

    choose = np.maximum
    operation = Operation.MAXIMUM


@operator("broadcast_minimum")
class BroadcastMinimum(_OfBroadcast):
    """min(lhs, rhs) with broadcasting."""

    family = "min"

    choose = np.minimum
    operation = Operation.MINIMUM


class _OfNumber(WithNumber):
    """Base of the maximum and the minimum of a tensor and a number, which the dtype must hold. They keep the dtype."""

    expression_arity = 1
    exact_in_integers = True

    choose: ClassVar[np.ufunc]

    def infer(self, x: TensorType) -> TensorType:
        if x.is_integer:
            info = np.iinfo(x.dtype) if x.dtype != "bool" else np.iinfo("uint8")
            if not float(self.scalar).is_integer() or not info.min <= self.scalar <= info.max:
                raise GraphError(f"scalar {self.scalar} meets {x}; an integer that the dtype holds is needed")
        return x

    def evaluate(self, x: Array) -> Array:
        return np.asarray(self._chosen(x))

    def bounds(self, x: Interval) -> Interval:
        return x.map(self._chosen)

    def _chosen(self, x: Array) -> Array:
        """The scalar is taken in the kind of `x`, so that integers stay exact."""
        chosen: Array = self.choose(x, self.scalar if x.dtype.kind == "f" else int(self.scalar))
        return chosen


@operator("_maximum_scalar", "_MaximumScalar")
class MaximumScalar(_OfNumber):
    """max(data, scalar)."""

    scalar: float

    choose = np.maximum
    operation = Operation.MAXIMUM

    @property
    def limits(self) -> tuple[float, float]:
        return self.scalar, math.inf


@operator("_minimum_scalar", "_MinimumScalar")
class MinimumScalar(_OfNumber):
    """min(data, scalar)."""

    scalar: float

    choose = np.minimum
    operation = Operation.MINIMUM

    @property
    def limits(self) -> tuple[float, float]:
        return -math.inf, self.scalar


@operator("where")
class Where(Operator):
    """x where the condition is not 0, else y; all three broadcast. Keeps the dtype.

    A condition of rank 1 chooses whole slices along axis 0, as MXNet has it, unless x and y are of rank 1 too.
    """

    input_names = ("condition", "x", "y")

    def infer(self, condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
        rank = max(x.rank, y.rank)
        aligned = condition.with_shape(self.aligned(condition.shape, rank))
        return TensorType(broadcast_shape(aligned, x, y), _one_dtype(x, y))

    def evaluate(self, condition: Array, x: Array, y: Array) -> Array:
        aligned = condition.reshape(self.aligned(condition.shape, max(x.ndim, y.ndim)))
        return np.where(aligned != 0, x, y)

    def bounds(self, condition: Interval, x: Interval, y: Interval) -> Interval:
        rank = max(len(x.shape), len(y.shape))
        lo, hi = (bound.reshape(self.aligned(bound.shape, rank)) for bound in (condition.lo, condition.hi))
        always, never = (lo > 0) | (hi < 0), (lo == 0) & (hi == 0)

        def chosen(first: Array, second: Array, either: Array) -> Array:
            return np.where(always, first, np.where(never, second, either))

        lowest = chosen(x.lo, y.lo, np.minimum(x.lo, y.lo))
        highest = chosen(x.hi, y.hi, np.maximum(x.hi, y.hi))
        return Interval.of(lowest, highest, output_shape(self, condition, x, y))

    @staticmethod
    def aligned(condition: tuple[int, ...], rank: int) -> tuple[int, ...]:
        """The condition's shape as it broadcasts with values of `rank` axes."""
        return (*condition, *(1,) * (rank - 1)) if len(condition) == 1 else condition


@operator("Embedding")
class Embedding(Operator):
    """Rows of the table (input_dim, output_dim), one for each index: (...) to (..., output_dim).

    An index outside is moved to the nearest end; float indices, which MXNet uses, are truncated.
    """

    family = "lookup"

    input_dim: int
    output_dim: int

    ignored = frozenset({"dtype", "sparse_grad"})
    input_names = ("data", "weight")

    def infer(self, indices: TensorType, table: TensorType) -> TensorType:
        if table.shape != (self.input_dim, self.output_dim) or not self.input_dim:
            raise GraphError(f"weight is {table}; shape ({self.input_dim}, {self.output_dim}) is needed")
        return table.with_shape((*indices.shape, self.output_dim))

    def positions(self, index: int, *inputs: TensorType) -> tuple[int, int] | None:
        return (0, self.input_dim - 1) if index == 0 else None

    def evaluate(self, indices: Array, table: Array) -> Array:
        return table[self._rows(indices)]

    def bounds(self, indices: Interval, table: Interval) -> Interval:
        shape = output_shape(self, indices, table)
        if indices.is_constant and table.lo.shape[0] == table.hi.shape[0] == self.input_dim:
            rows = self._rows(indices.expanded().lo)
            return Interval(table.lo[rows], table.hi[rows], shape)
        lo, hi = table.lo.min(axis=0), table.hi.max(axis=0)
        return Interval.of(lo, hi, shape)

    def _rows(self, indices: Array) -> Array:
        return np.clip(indices.astype(np.int64), 0, self.input_dim - 1)
