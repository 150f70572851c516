"""The partial sums of a reduction: their constants and scales, how far they reach, and what shifting them loses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from expansions.reduction.cuts import Cut, Slice
from expansions.reduction.operands import Operands
from mrt.quantization.integer.weights import QuantizedWeight, spread
from mrt.symbol import Array, Interval
from mrt.symbol.types import INT32_MAX

PARTIAL_LIMIT = 2**30
"""The most that shifted partial sums reach together."""


@dataclass(frozen=True, eq=False)
class PartialSums:
    """The partial sums of a reduction with an integer weight, cut into slices."""

    operands: Operands
    weight: QuantizedWeight
    cut: Cut

    @property
    def step(self) -> Array:
        """(O,), the scale of the accumulator."""
        scale: Array = self.operands.step * self.weight.scale * 2.0**self.cut.shift
        return scale

    @property
    def limit(self) -> int:
        """The most that they may reach together."""
        return PARTIAL_LIMIT if self.cut.shift else INT32_MAX

    def rows(self, part: Slice) -> Array:
        """The integer weights of a slice, its output channels first."""
        return self.weight.integers[part.outputs, part.columns]

    def zero_point(self, part: Slice) -> Array:
        """(O,) of the slice's outputs: the zero point of its weights."""
        return self.weight.zero_point[part.outputs, part.columns.start]

    def factor(self, part: Slice) -> Array:
        """(O,) of the slice's outputs: the scale of its sum in steps of the accumulator's."""
        column, operands = part.columns.start, self.operands
        data = operands.for_each_weight(operands.summed_factors)[part.outputs, column]
        result: Array = self.weight.factors[part.outputs, column] * data
        return result

    def constant(self, part: Slice) -> Array:
        """-zx Y(1, Wq - zw) of one slice, in its own steps; of the output's rank."""
        operands, rows = self.operands, self.rows(part)
        if operands.data.is_centred:
            return self._no_constant
        centred = rows - spread(self.weight.zero_point[part.outputs, part.columns], rows.ndim)
        zero_points = operands.for_each_weight(operands.data.zero_points)[part.outputs, part.columns]
        return -operands.form.totals(centred * spread(zero_points, rows.ndim), part.groups, operands.op.type.rank)

    @property
    def whole_constant(self) -> Array:
        """-zx Y(1, Wq - zw) of all slices, in steps of the accumulator; of the output's rank."""
        operands = self.operands
        if operands.data.is_centred:
            return self._no_constant
        centred = self.weight.centred
        zero_points = operands.for_each_weight(operands.data.zero_points * operands.summed_factors)
        weighted = centred * spread(zero_points, centred.ndim)
        return -operands.form.totals(weighted, operands.form.groups, operands.op.type.rank)

    @property
    def _no_constant(self) -> Array:
        return np.zeros((1,) * self.operands.op.type.rank, np.int64)

    def reached(self, added: Array) -> int | None:
        """The most that the sums, in any order and before any correction, and `added`, reach.

        added: Python ints, one for each output channel. None where a slice's sum exceeds 32 bits by itself.
        """
        most = 0
        for slices in self.cut.groups:
            total: Array = np.zeros(1, object)
            for part in slices:
                largest = self._largest(part)
                if largest.max() > INT32_MAX:
                    return None
                factor = self.factor(part)
                first = _shift_before(largest, factor, self.cut.shift)
                total = total + _shifted(_shifted(largest, first) * factor, self.cut.shift - first)
            most = max(most, (total + added[slices[0].outputs]).max())
        return most

    def shift_before(self, part: Slice) -> int:
        """How much of the shift must come before the multiplication by the factor, so that the product fits 32 bits."""
        return _shift_before(self._largest(part), self.factor(part), self.cut.shift)

    @property
    def loss(self) -> float:
        """The most that shifting rounds away from a sum of real values."""
        steps = max(sum(self._rounding(part) for part in slices) for slices in self.cut.groups)
        return steps * float((self.weight.scale * self.operands.step).max()) * 2.0**self.cut.shift

    def _rounding(self, part: Slice) -> float:
        """The most that shifting one slice's sum rounds away, in steps of the result: half, and what comes before."""
        first = self.shift_before(part)
        return 0.5 + (float(self.factor(part).max()) * 2.0 ** (first - self.cut.shift - 1) if first else 0.0)

    def _largest(self, part: Slice) -> Array:
        """The largest magnitude of any term of one slice, for each output channel; Python ints."""
        operands, form, rows = self.operands, self.operands.form, self.rows(part)
        bounds = _sliced(operands.bounds, operands.axis, part)
        weight = Interval.constant(form.weight(rows, part.groups))
        largest = np.zeros(1, object)
        for interval in form.part(len(rows), part.groups).intermediates(bounds, weight):
            reduced = interval.reduced([form.channel_axis])
            reached = np.maximum(np.abs(reduced.lo), np.abs(reduced.hi)).reshape(-1).astype(object)
            largest = np.maximum(largest, reached)
        zero_points = np.abs(self.zero_point(part)).astype(object)
        moved = np.abs(self.constant(part))
        moved = moved.max(axis=tuple(axis for axis in range(moved.ndim) if axis != form.channel_axis)).astype(object)
        result: Array = largest + zero_points * bounds.magnitude * rows[0].size + moved
        return result


def _shift_before(largest: Array, factor: Array, shift: int) -> int:
    """How much of a shift must come before the multiplication by `factor`, so that the product fits 32 bits.

    largest: Python ints, the magnitudes that are shifted. It is all of the shift where less does not do.
    """
    for first in range(shift):
        if (_shifted(largest, first) * factor).max() <= INT32_MAX:
            return first
    return shift


def _shifted(magnitudes: Array, by: int) -> Array:
    """Python ints shifted right, rounding half up."""
    return ((magnitudes >> (by - 1)) + 1) >> 1 if by else magnitudes


def _sliced(bounds: Interval, axis: int, part: Slice) -> Interval:
    """The interval of a slice along `axis`."""
    shape = tuple(part.last - part.first if i == axis else n for i, n in enumerate(bounds.shape))

    def cut(end: Array) -> Array:
        return end if end.shape[axis] == 1 else end.take(range(part.first, part.last), axis)

    return Interval(cut(bounds.lo), cut(bounds.hi), shape)
