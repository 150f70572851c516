"""Matrix products: FullyConnected and batch_dot."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
from typing_extensions import Self

from mrt.errors import GraphError
from mrt.symbol.interval import Array, Interval, add
from mrt.symbol.operator import Operator, operator
from mrt.symbol.operators._intervals import added, output_shape, partial_sums, product, reshaped, summed, weighted
from mrt.symbol.operators._products import sum_of_products
from mrt.symbol.operators.layer import Layer
from mrt.symbol.types import TensorType, arithmetic_dtype

_ROUNDED = 1e-3
"""How far from 1 rounding may bring a sum of the factors of an interpolation."""
_OVERSHOOT = 2.0
"""How much the magnitudes of these add up to at most; those of cubic interpolation to less than 1.6."""


@operator("FullyConnected")
class FullyConnected(Layer):
    """Y = X W^T + b, with the weight (num_hidden, K) and the bias (num_hidden,).

    flatten: the data (N, ...) is read as (N, K) and Y is (N, num_hidden); else the last axis of the data has length K
    and becomes num_hidden. Integers give int32.
    """

    family = "dense"

    num_hidden: int
    no_bias: bool = False
    flatten: bool = True

    weight_channel_axis = 0

    def channel_axis(self) -> int:
        return 1 if self.flatten else -1

    def part(self, outputs: int, groups: int) -> Self:
        """Dense layers have one group."""
        return replace(self, num_hidden=outputs)

    def interpolates(self, weight: Array) -> bool:
        """Whether each row of the weight adds up to 1, so that the output lies in the range of the data or near it."""
        if self.flatten or not self.no_bias or weight.dtype.kind != "f":
            return False
        rows = weight.astype(np.float64)
        return bool((abs(rows.sum(axis=1) - 1.0) <= _ROUNDED).all() and (abs(rows).sum(axis=1) <= _OVERSHOOT).all())

    def infer(self, x: TensorType, weight: TensorType, bias: TensorType | None = None) -> TensorType:
        if x.rank < (2 if self.flatten else 1):
            raise GraphError(f"data is {x}; rank 2 or more is needed, rank 1 or more where flatten is False")
        length = prod(x.shape[1:]) if self.flatten else x.shape[-1]
        if weight.shape != (self.num_hidden, length):
            raise GraphError(f"weight is {weight}; shape ({self.num_hidden}, {length}) is needed for data {x}")
        if self.no_bias != (bias is None):
            raise GraphError(f"no_bias is {self.no_bias}, but a bias is {'missing' if bias is None else 'given'}")
        if bias is not None and bias.shape != (self.num_hidden,):
            raise GraphError(f"bias is {bias}; shape ({self.num_hidden},) is needed")
        leading = x.shape[:1] if self.flatten else x.shape[:-1]
        given = (x, weight) if bias is None else (x, weight, bias)
        return TensorType((*leading, self.num_hidden), arithmetic_dtype(*given))

    def data_channel_axis(self, rank: int) -> int:
        return 1 if self.flatten else rank - 1

    def evaluate(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        rows = x.reshape(x.shape[0] if self.flatten else prod(x.shape[:-1]), weight.shape[1])
        result = sum_of_products(lambda a, b: np.matmul(a, b.T), rows, weight, weight.shape[1])
        result = result if bias is None else add(result, bias)
        return result if self.flatten else result.reshape(*x.shape[:-1], self.num_hidden)

    def patches(self, x: Array, positions: Array) -> Array:
        rows = x.reshape(len(x), -1) if self.flatten else x.reshape(-1, x.shape[-1])
        return rows[positions][None]

    def bounds(self, x: Interval, weight: Interval, bias: Interval | None = None) -> Interval:
        if self.flatten:
            rows = x.reduced(range(1, len(x.shape)))
            columns = weight.shape[1]
            rows = reshaped(Interval(rows.lo, rows.hi, (1, *x.shape[1:])), (1, columns), repeats=columns)
        else:
            rows = x.reduced([len(x.shape) - 1])
        flat = weighted(rows, weight)
        flat = flat if bias is None else added(flat, bias, flat.shape)
        shape = output_shape(self, x, weight) if bias is None else output_shape(self, x, weight, bias)
        return Interval.of(flat.lo, flat.hi, shape)

    def intermediates(self, x: Interval, weight: Interval, bias: Interval | None = None) -> tuple[Interval, ...]:
        return (self.bounds(partial_sums(x), weight, None if bias is None else partial_sums(bias)),)

    def batch_obstacle(self, x: TensorType, weight: TensorType, bias: TensorType | None = None) -> str:
        return "the sum runs over axis 0" if x.rank == 1 else ""


@operator("batch_dot")
class BatchDot(Operator):
    """lhs rhs, matrix by matrix: (..., M, K) times (..., K, N) gives (..., M, N), the leading axes equal.

    transpose_a, transpose_b: the last two axes of lhs, rhs are swapped first. Integers give int32.
    """

    family = "matmul"

    transpose_a: bool = False
    transpose_b: bool = False

    ignored = frozenset({"forward_stype"})
    input_names = ("lhs", "rhs")

    def infer(self, lhs: TensorType, rhs: TensorType) -> TensorType:
        if lhs.rank < 3 or lhs.rank != rhs.rank or lhs.shape[:-2] != rhs.shape[:-2]:
            raise GraphError(f"operands are {lhs} and {rhs}; rank 3 or more and equal leading axes are needed")
        rows, inner = lhs.shape[:-3:-1] if self.transpose_a else lhs.shape[-2:]
        other, columns = rhs.shape[:-3:-1] if self.transpose_b else rhs.shape[-2:]
        if inner != other:
            raise GraphError(f"operands are {lhs} and {rhs}; sums over {inner} and {other} elements do not fit")
        return TensorType((*lhs.shape[:-2], rows, columns), arithmetic_dtype(lhs, rhs))

    def summed_products(self, *inputs: TensorType) -> int:
        return inputs[0].shape[-2 if self.transpose_a else -1]

    def evaluate(self, lhs: Array, rhs: Array) -> Array:
        a, b = self._swapped(lhs, rhs)
        return sum_of_products(np.matmul, a, b, a.shape[-1])

    def bounds(self, lhs: Interval, rhs: Interval) -> Interval:
        return self._sum(self._terms(lhs, rhs), output_shape(self, lhs, rhs))

    def intermediates(self, lhs: Interval, rhs: Interval) -> tuple[Interval, ...]:
        return (self._sum(partial_sums(self._terms(lhs, rhs)), output_shape(self, lhs, rhs)),)

    def _terms(self, lhs: Interval, rhs: Interval) -> Interval:
        """The products of one output element along the summed axis, for every column: (K, N), N or 1."""
        rank = len(lhs.shape)
        inner = rank - 2 if self.transpose_a else rank - 1
        left = lhs.reduced([inner])
        right = rhs.reduced([rank - 2, rank - 1])
        (lo, a), (hi, b) = self._swapped(left.lo, right.lo), self._swapped(left.hi, right.hi)
        shape = (lhs.shape[inner], rhs.shape[rank - 2 if self.transpose_b else rank - 1])
        x = Interval(lo.reshape(-1, 1), hi.reshape(-1, 1), (shape[0], 1))
        y = Interval(a.reshape(a.shape[-2:]), b.reshape(b.shape[-2:]), shape)
        return product(x, y, shape)

    def _swapped(self, lhs: Array, rhs: Array) -> tuple[Array, Array]:
        return (
            lhs.swapaxes(-1, -2) if self.transpose_a else lhs,
            rhs.swapaxes(-1, -2) if self.transpose_b else rhs,
        )

    @staticmethod
    def _sum(terms: Interval, shape: tuple[int, ...]) -> Interval:
        result = summed(terms, (0,))
        return Interval.of(result.lo, result.hi, shape)
