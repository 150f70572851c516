"""The symbols of a reduction: one for the products of each slice, their corrections, and the sum of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from expansions.reduction.cuts import Slice
from expansions.reduction.form import Form
from expansions.reduction.operands import Operands
from expansions.reduction.partial_sums import PartialSums
from mrt.quantization.integer.builder import IntegerBuilder
from mrt.quantization.integer.quantized import Quantized
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.transform import Concat, Reshape, SliceAxis


def emit(sums: PartialSums, builder: IntegerBuilder) -> Quantized:
    """The accumulator of partial sums that fit 32 bits."""
    return _Emission(sums, builder).accumulator()


@dataclass(frozen=True, eq=False)
class _Emission:
    """suffix, in the methods: of the names of what is made."""

    sums: PartialSums
    builder: IntegerBuilder

    @property
    def operands(self) -> Operands:
        return self.sums.operands

    @property
    def form(self) -> Form:
        return self.operands.form

    @property
    def weight_name(self) -> str:
        return self.operands.op.inputs[1].name

    def accumulator(self) -> Quantized:
        cut, form, rank = self.sums.cut, self.form, self.operands.op.type.rank
        merged = [self._merged(slices) for slices in cut.groups]
        total = merged[0] if len(merged) == 1 else self.builder.apply(Concat(dim=form.channel_axis), merged)
        total = total if cut.shift else self._centred(total)
        return self.builder.quantized(total, form.along(self.sums.step, rank))

    def _centred(self, total: Symbol) -> Symbol:
        """`total`, a sum that was not shifted, and the constant of all slices."""
        operands, weight, constant = self.operands, self.sums.weight, self.sums.whole_constant
        if constant.any():
            total = self.builder.add_constant(total, f"{self.weight_name}_correction", constant, "_centred")
        if weight.zero_point.any() or constant.size > operands.output_count:
            # The terms are correlated; what they can reach together is what the centred operands can.
            interval = operands.reached(weight.centred)
            total = self.builder.clip_to(total, int(interval.min), int(interval.max))
        return total

    def _merged(self, slices: Sequence[Slice]) -> Symbol:
        """The sum of the slices of one group of output channels; of the whole where there is one slice."""
        sums, group = self.sums, self._group_suffix(slices[0])
        whole = len(slices) == len(sums.cut.groups) == 1
        together = not sums.cut.shift and self._are_alike(slices[0].outputs)
        terms, windows = [], []
        for part in slices:
            suffix = "" if whole else f"{group}_slice{part.first}"
            data = self._data(part, suffix)
            term = self._products(data, part, suffix)
            if sums.zero_point(part).any():
                window = self._window(data, part, suffix)
                if together:
                    windows.append(self._scaled(window, sums.factor(part)[:1], f"{suffix}_window"))
                else:
                    term = self._corrected(term, window, sums.zero_point(part), suffix)
            if sums.cut.shift:
                terms.append(self._shifted(term, part, suffix))
            else:
                terms.append(self._scaled(term, sums.factor(part), suffix))
        total = self._added(terms, group)
        if not windows:
            return total
        return self._corrected(total, self._added(windows, f"{group}_window"), sums.zero_point(slices[0]), group)

    def _group_suffix(self, part: Slice) -> str:
        return "" if len(self.sums.cut.groups) == 1 else f"_group{part.outputs.start}"

    def _are_alike(self, outputs: slice) -> bool:
        """Whether all slices have the zero points, and all output channels the factors, of the first.

        What they have in common multiplies the sum of their windows once; that is fewer terms, and exact.
        """
        zero_points, factors = self.sums.weight.zero_point[outputs], self.sums.weight.factors[outputs]
        return bool((zero_points == zero_points[:, :1]).all() and (factors == factors[:1]).all())

    def _added(self, terms: Sequence[Symbol], suffix: str) -> Symbol:
        return terms[0] if len(terms) == 1 else self.builder.apply(AddN(), terms, suffix)

    def _data(self, part: Slice, suffix: str) -> Symbol:
        """The channels of the data that a slice reads."""
        symbol = self.operands.data.symbol
        if part.last - part.first == self.operands.channels:
            return symbol
        cut = SliceAxis(axis=self.operands.axis, begin=part.first, end=part.last)
        return self.builder.apply(cut, [symbol], f"{suffix}_data")

    def _products(self, data: Symbol, part: Slice, suffix: str) -> Symbol:
        """Y(Xq, Wq) of one slice, in its own steps."""
        rows = self.sums.rows(part)
        weight = self.builder.constant(f"{self.weight_name}{suffix}", self.form.weight(rows, part.groups))
        return self.builder.apply(self.form.part(len(rows), part.groups), [data, weight], suffix)

    def _window(self, data: Symbol, part: Slice, suffix: str) -> Symbol:
        """window(Xq) of one slice: what the zero points of its weights are multiplied with."""
        groups, rows = part.groups, self.sums.rows(part)
        ones = self.form.weight(np.ones((groups, *rows.shape[1:]), np.int64), groups)
        taps = self.builder.constant(f"{self.weight_name}{suffix}_ones", ones)
        return self.builder.apply(self.form.part(groups, groups), [data, taps], f"{suffix}_window")

    def _corrected(self, term: Symbol, window: Symbol, zero_point: Array, suffix: str) -> Symbol:
        """term - zw window."""
        products = self._spread(window, -zero_point, f"{self.weight_name}{suffix}_zero_point", suffix)
        return self.builder.apply(BroadcastAdd(), [term, products], f"{suffix}_corrected")

    def _spread(self, window: Symbol, factors: Array, name: str, suffix: str) -> Symbol:
        """`window`, one channel per group, times the factors of the output channels of each group."""
        builder, axis, rank = self.builder, self.form.channel_axis, window.type.rank
        groups, channels = window.shape[axis], len(factors)
        if groups in (1, channels):
            operand = builder.constant(name, self.form.along(factors, rank))
            return builder.apply(BroadcastMul(), [window, operand], f"{suffix}_offset")
        spatial = window.shape[axis + 1 :]
        apart = builder.apply(Reshape(shape=(0, groups, 1, *spatial)), [window], f"{suffix}_groups")
        split = factors.reshape(1, groups, channels // groups, *(1,) * len(spatial))
        products = builder.apply(BroadcastMul(), [apart, builder.constant(name, split)], f"{suffix}_offset")
        return builder.apply(Reshape(shape=(0, channels, *spatial)), [products], f"{suffix}_merged")

    def _scaled(self, term: Symbol, factor: Array, suffix: str) -> Symbol:
        """`term` in steps of the accumulator; factor: for each of its channels, or one."""
        if (factor == 1).all():
            return term
        op, same = self.operands.op, factor[:1] if (factor == factor[0]).all() else factor
        operand = self.builder.constant(f"{op.name}{suffix}_factor", self.form.along(same, op.type.rank))
        return self.builder.apply(BroadcastMul(), [term, operand], f"{suffix}_scaled")

    def _shifted(self, term: Symbol, part: Slice, suffix: str) -> Symbol:
        """`term` centred, in steps of 2^shift times the accumulator's, rounded half up.

        It is multiplied by its factor before the shift, as far as 32 bits allow; the rest of the shift comes first.
        """
        sums, builder, constant = self.sums, self.builder, self.sums.constant(part)
        if constant.any():
            term = builder.add_constant(term, f"{term.name}_correction", constant, f"{suffix}_centred")
        first = sums.shift_before(part)
        shifted = builder.shifted(term, first, f"{suffix}_before")
        return builder.shifted(
            self._scaled(shifted, sums.factor(part), suffix), sums.cut.shift - first, f"{suffix}_behind"
        )
