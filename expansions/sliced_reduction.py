"""Sums of products of an activation and a weight, whole or in slices of channels: what all layers share."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from expansions.given_weight import given_weight
from mrt.errors import QuantizationError
from mrt.quantization.builder import IntegerBuilder
from mrt.quantization.expansion import Demand, Inputs
from mrt.quantization.options import WeightConfig
from mrt.quantization.plan import ScalePlan
from mrt.quantization.quantized import Quantized
from mrt.quantization.weights import QuantizedWeight, quantize_weight, spread, with_correction_room
from mrt.symbol import Array, Graph, Interval, Operator, Symbol
from mrt.symbol.operators.broadcast import BroadcastAdd, BroadcastMul
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.elementwise import AddN
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.transform import Concat, Reshape, SliceAxis
from mrt.symbol.types import INT32_MAX

MOST_SHIFT = 8
"""Partial sums lose at most this many bits before they are added; beyond that the weights lose bits instead."""
PARTIAL_LIMIT = 2**30
"""The most that shifted partial sums reach together."""


def reduction_demands(symbol: Symbol, graph: Graph) -> tuple[Demand, ...]:
    """The data in channel groups where it has them; the weight is a parameter."""
    return (Demand.CHANNELS, *(Demand.NARROW for _ in symbol.inputs[1:]))


@dataclass(frozen=True, eq=False)
class Form:
    """What differs between reductions; here for weights whose output channels come first, (O, I, *kernel).

    operator: of the symbol. channel_axis: of the output. groups: the operator's own channel groups.
    """

    operator: Convolution | Deconvolution | FullyConnected
    channel_axis: int
    groups: int = 1
    kernel: tuple[int, ...] = ()

    def part(self, outputs: int, groups: int) -> Operator:
        """The operator for so many output channels in so many groups."""
        if isinstance(self.operator, FullyConnected):
            return replace(self.operator, num_hidden=outputs)
        return replace(self.operator, num_filter=outputs, num_group=groups)

    def rows(self, weight: Array) -> Array:
        """The operator's weight with its output channels first."""
        return weight

    def weight(self, rows: Array, groups: int) -> Array:
        """The weight of `part` that has these rows."""
        return rows

    def totals(self, rows: Array, groups: int, rank: int) -> Array:
        """What `part` gives for data of ones, as an operand of rank `rank`: at every position the row's sum."""
        return self.along(rows.reshape(rows.shape[0], -1).sum(axis=1), rank)

    def along(self, values: Array, rank: int) -> Array:
        """One value for each output channel, as an operand of rank `rank`."""
        return values.reshape(tuple(-1 if axis == self.channel_axis else 1 for axis in range(rank)))


def expand_reduction(op: Symbol, inputs: Inputs, plan: ScalePlan, builder: IntegerBuilder, form: Form) -> Quantized:
    """The integers of Y / (sx sw[o]) = Y(Xq, Wq) - zw[o] window(Xq) - zx Y(1, Wq - zw), without its zero terms.

    Channel groups of the data or of the weight's input channels split the sum into slices of X and W along the input
    channels, one reduction each, merged by add_n:

        Y / (s sw[o]) = sum over the slices g of f[o, g] (Y(Xq_g, Wq_g) - zw[o, g] window(Xq_g)) - ...

    s is the common scale of the data and f[o, g] the product of the integer factors of X's and W's scales, so that the
    sum is exact and requantized once. Where it would exceed 32 bits every partial sum is rescaled to 2^shift times the
    scale before the merge. Source: Channel Split and Channel Merge of "MRT Generalized Quantization Math
    Formalization". An operator with groups of its own is sliced within each of them and merged by Concat; where every
    one reads channels of one scale, as a depthwise convolution does, that scale goes to its outputs and nothing is
    sliced.
    """
    if len(inputs.values) != 2:
        raise QuantizationError(f"{op.name} ({op.op}): separate its bias first (preparation does)")
    given = given_weight(plan.constants.get(op.inputs[1].name), op, form.rows, builder)
    return _Reduction(op, inputs.quantized(0), form.rows(inputs.parameter(1)), form, plan, builder, given).expand()


@dataclass(frozen=True)
class _Slice:
    """Input channels first to last, of the data, that feed the output channels of one group, or of all."""

    first: int
    last: int


@dataclass(frozen=True)
class _Cut:
    """How a reduction is sliced: the output groups, each with its slices, and by how much partial sums are shifted."""

    groups: tuple[tuple[_Slice, ...], ...]
    shift: int = 0

    @property
    def terms(self) -> int:
        """How many partial sums are added for one output."""
        return max(len(slices) for slices in self.groups)


@dataclass(frozen=True, eq=False)
class _Reduction:
    """One reduction being expanded. weight: float, with its output channels first, (O, I, ...). given: the integers
    that it came with, which are taken as they are."""

    op: Symbol
    data: Quantized
    weight: Array
    form: Form
    plan: ScalePlan
    builder: IntegerBuilder
    given: QuantizedWeight | None = None

    def expand(self) -> Quantized:
        """The accumulator: with the most bits of the weights that fit 32 bits, whole if possible."""
        if self.given is not None:
            return self._of_given(self.given)
        options = self.plan.config.weight_of(self.op.name)
        for bits in range(options.bits, 1, -1):
            lowered = options.model_copy(update={"bits": bits})
            for cut in self._cuts(lowered):
                quantized = self._quantize(lowered, cut)
                if self._fits(quantized, cut):
                    self._note(quantized, options.bits, bits, cut)
                    return self._emit(quantized, cut)
        raise QuantizationError(
            f"{self.op.name} ({self.op.op}): its sums of {self.weight[0].size} products need more than 32 bits even "
            f"with weights of 2 bits; lower activation.bits for {self.op.inputs[0].name}"
        )

    def _of_given(self, given: QuantizedWeight) -> Quantized:
        """The accumulator of the integers that the weight came with, in slices where it does not fit otherwise."""
        for cut in self._cuts(WeightConfig()):
            if self._fits(given, cut):
                self._note(given, 0, 0, cut)
                return self._emit(given, cut)
        raise QuantizationError(
            f"{self.op.name} ({self.op.op}): its sums of {self.weight[0].size} products of integers that the network "
            f"brings need more than 32 bits; train them with fewer bits"
        )

    @cached_property
    def axis(self) -> int:
        """The channel axis of the data."""
        axis: int = self.form.operator.data_channel_axis(self.data.symbol.type.rank)
        return axis

    @cached_property
    def channels(self) -> int:
        return self.data.symbol.shape[self.axis]

    @cached_property
    def columns(self) -> int:
        """How many elements of a row's axis 1 belong to one channel of the data: more than 1 where it is flattened."""
        return int(self.weight.shape[1]) * self.form.groups // self.channels

    @cached_property
    def factors(self) -> Array:
        """The scale of every data channel in steps of the common one: int64, of the data's rank."""
        groups, shape = self.data.groups, self.data.symbol.shape
        return np.ones((1,) * len(shape), np.int64) if groups is None else groups.spread(groups.factors, shape)

    @cached_property
    def read(self) -> Array:
        """(O, I): the factor of the data channel that each weight is multiplied with."""
        return self._for_each_weight(self.factors)

    @cached_property
    def is_scaled(self) -> bool:
        """Whether the operator's groups read one factor each, which then goes to the scale of their outputs."""
        return self.form.groups > 1 and bool((self.read == self.read[:, :1]).all())

    @cached_property
    def step(self) -> Array:
        """(O,), the scale of the data as the accumulator of each output channel counts it."""
        return self.data.step * (self.read[:, 0] if self.is_scaled else np.ones(len(self.weight)))

    @cached_property
    def offset(self) -> Array | None:
        """(O,), the largest |bias| that is added to each output channel; None where there is none."""
        bias = self.plan.bias_after(self.op)
        return None if bias is None else _largest_per_channel(bias, self.op, self.form.channel_axis)

    def _for_each_weight(self, values: Array) -> Array:
        """(O, I): the value, one or one for each data channel, of what each weight is multiplied with."""
        if values.size == 1:
            return np.broadcast_to(values.reshape(1, 1), self.weight.shape[:2])
        outputs, groups = self.weight.shape[0], self.form.groups
        each = np.broadcast_to(values.reshape(-1), (self.channels,)).reshape(groups, -1)
        return np.repeat(np.repeat(each, outputs // groups, axis=0), self.columns, axis=1)

    def _cuts(self, options: WeightConfig) -> Iterator[_Cut]:
        """The ways to slice the sum, the most exact first."""
        steps = self._weight_ends(options)
        if self.form.groups > 1 and len(steps) == 1 and (self.is_scaled or self.data.groups is None):
            yield _Cut(((_Slice(0, self.channels),),))
            return
        width = self.channels // self.form.groups
        wanted = {end // self.columns for end in steps}
        wanted = {first + end for first in range(0, self.channels, width) for end in wanted}
        wanted |= self._data_ends()
        cut = _Cut(tuple(_between(first, first + width, wanted) for first in range(0, self.channels, width)))
        yield cut
        if cut.terms > 1:
            yield from (replace(cut, shift=shift) for shift in range(1, MOST_SHIFT + 1))
            return
        for shift in range(1, MOST_SHIFT + 1):
            for count in (count for count in (2, 4, 8, 16) if count <= width):
                even = {
                    first + width * part // count for first in range(0, self.channels, width) for part in range(count)
                }
                yield _Cut(tuple(_between(f, f + width, even) for f in range(0, self.channels, width)), shift)

    def _data_ends(self) -> set[int]:
        """Where neighbouring channels of the data have another scale; zero points may differ within a slice."""
        factors = np.broadcast_to(self.factors.reshape(-1), (self.channels,))
        return {int(end) + 1 for end in np.flatnonzero(np.diff(factors))}

    def _weight_ends(self, options: WeightConfig) -> list[int]:
        """Where the groups of input channels that share a weight scale end, along axis 1 of a row."""
        inputs, step = self.weight.shape[1], options.channel_step
        return [inputs] if step is None else [*range(step * self.columns, inputs, step * self.columns), inputs]

    def _quantize(self, options: WeightConfig, cut: _Cut) -> QuantizedWeight:
        meets = self.plan.meets[self.op.name]
        wanted = None
        if meets is not None:
            scales = meets.scales(self.op.shape)
            others = tuple(axis for axis in range(scales.ndim) if axis != self.form.channel_axis)
            wanted = np.broadcast_to(scales.max(axis=others), (len(self.weight),))

        def magnitudes(integers: Array) -> Array:
            interval = self._reached(integers)
            largest = np.maximum(np.abs(interval.lo), np.abs(interval.hi)).reshape(-1)
            shifted = largest if not cut.shift else (largest >> cut.shift) + cut.terms
            return np.broadcast_to(self._with_room(shifted), (len(self.weight),))

        step = self.step * 2.0**cut.shift
        ends = self._weight_ends(options)
        return quantize_weight(self.weight, step, options, ends, wanted, self.offset, magnitudes)

    def _with_room(self, bound: Any) -> Any:
        """`bound` with what a correction of the bias may add to it."""
        return bound if self.plan.config.bias_correction == "none" else with_correction_room(bound)

    def _reached(self, centred: Array) -> Interval:
        """The accumulator's interval for a weight of these centred integers."""
        steps = 1 if self.is_scaled else self.factors
        data = self.builder.bounds(self.data.symbol).map(lambda bound: (bound - self.data.zero_points) * steps)
        weight = Interval.constant(self.form.weight(centred, self.form.groups))
        bounds: Interval = self.form.operator.bounds(data, weight)
        return bounds.reduced([self.form.channel_axis])

    def _fits(self, quantized: QuantizedWeight, cut: _Cut) -> bool:
        """Whether the sums, in any order and before any correction, and with a bias, stay within 32 bits."""
        added: Array = np.zeros(len(self.weight), object)
        if self.offset is not None:
            steps = self.offset / (self.step * quantized.scale * 2.0**cut.shift)
            added = np.array([math.ceil(step) + 1 for step in steps.tolist()], object)
        for outputs, slices in zip(self._outputs(cut), cut.groups, strict=True):
            total: Array = np.zeros(1, object)
            for part in slices:
                largest = self._largest(quantized, outputs, part)
                if largest.max() > INT32_MAX:
                    return False
                factor = self._factor(quantized, outputs, part)
                first = _shift_before(largest, factor, cut.shift)
                total = total + _shifted(_shifted(largest, first) * factor, cut.shift - first)
            if self._with_room((total + added[outputs]).max()) > (PARTIAL_LIMIT if cut.shift else INT32_MAX):
                return False
        return True

    def _largest(self, quantized: QuantizedWeight, outputs: slice, part: _Slice) -> Array:
        """The largest magnitude of any term of one slice, for each output channel; Python ints."""
        columns, groups = self._columns(part), self._groups_of(part)
        bounds = _sliced(self.builder.bounds(self.data.symbol), self.axis, part)
        rows = quantized.integers[outputs, columns]
        operator = self.form.part(rows.shape[0], groups)
        weight = Interval.constant(self.form.weight(rows, groups))
        largest = np.zeros(1, object)
        for interval in operator.intermediates(bounds, weight):
            reduced = interval.reduced([self.form.channel_axis])
            reached = np.maximum(np.abs(reduced.lo), np.abs(reduced.hi)).reshape(-1).astype(object)
            largest = np.maximum(largest, reached)
        zero_points = np.abs(quantized.zero_point[outputs, columns.start]).astype(object)
        moved = np.abs(self._constant(quantized, outputs, part))
        moved = moved.max(axis=tuple(a for a in range(moved.ndim) if a != self.form.channel_axis)).astype(object)
        result: Array = largest + zero_points * bounds.magnitude * rows[0].size + moved
        return result

    def _constant(self, quantized: QuantizedWeight, outputs: slice, part: _Slice) -> Array:
        """-zx Y(1, Wq - zw) of one slice, in its own steps; of the output's rank."""
        columns = self._columns(part)
        rows = quantized.integers[outputs, columns]
        weighted: Array = np.broadcast_to(np.int64(0), rows.shape)
        if self.data.zero_points.any():
            centred = rows - spread(quantized.zero_point[outputs, columns], rows.ndim)
            weighted = centred * spread(self._for_each_weight(self.data.zero_points)[outputs, columns], rows.ndim)
        return -self.form.totals(weighted, self._groups_of(part), self.op.type.rank)

    def _outputs(self, cut: _Cut) -> list[slice]:
        """The output channels of each of the cut's groups."""
        each = len(self.weight) // len(cut.groups)
        return [slice(first, first + each) for first in range(0, len(self.weight), each)]

    def _groups_of(self, part: _Slice) -> int:
        """How many of the operator's groups a slice holds: all, or it lies within one."""
        return self.form.groups if part.last - part.first == self.channels else 1

    def _columns(self, part: _Slice) -> slice:
        """The elements of a row's axis 1 that a slice of the data is multiplied with."""
        width = self.channels // self.form.groups
        if part.last - part.first > width:
            return slice(0, self.weight.shape[1])
        first = part.first % width
        return slice(first * self.columns, (first + part.last - part.first) * self.columns)

    def _factor(self, quantized: QuantizedWeight, outputs: slice, part: _Slice) -> Array:
        """(O,) of the group's outputs: the scale of a slice's sum in steps of the accumulator's."""
        column = self._columns(part).start
        data = 1 if self.is_scaled else self.read[outputs, column]
        result: Array = quantized.factors[outputs, column] * data
        return result

    def _note(self, quantized: QuantizedWeight, asked: int, bits: int, cut: _Cut) -> None:
        what = f"{self.op.name} ({self.op.op})"
        if bits < asked:
            self.builder.notes.append(
                f"{what}: weights of {bits} bits instead of {asked}, so that {self.weight[0].size} products fit 32 "
                f"bits; a weight is off by at most {float(quantized.scale.max()) / 2:.3g}"
            )
        if cut.shift:
            steps = max(
                sum(self._rounding(quantized, outputs, part, cut.shift) for part in slices)
                for outputs, slices in zip(self._outputs(cut), cut.groups, strict=True)
            )
            error = steps * float((quantized.scale * self.step).max()) * 2.0**cut.shift
            self.builder.notes.append(
                f"{what}: {cut.terms} partial sums, shifted right by {cut.shift} before they are added, so that "
                f"{self.weight[0].size} products fit 32 bits; the sum is off by at most {error:.3g}"
            )

    def _rounding(self, quantized: QuantizedWeight, outputs: slice, part: _Slice, shift: int) -> float:
        """The most that shifting one slice's sum rounds away, in steps of the result: half, and what comes before."""
        factor = self._factor(quantized, outputs, part)
        first = _shift_before(self._largest(quantized, outputs, part), factor, shift)
        return 0.5 + (float(factor.max()) * 2.0 ** (first - shift - 1) if first else 0.0)

    def _emit(self, quantized: QuantizedWeight, cut: _Cut) -> Quantized:
        builder, rank = self.builder, self.op.type.rank
        merged = [
            self._merged(quantized, cut, outputs, slices)
            for outputs, slices in zip(self._outputs(cut), cut.groups, strict=True)
        ]
        accumulator = merged[0] if len(merged) == 1 else builder.apply(Concat(dim=self.form.channel_axis), merged)
        if self.plan.config.bias_correction == "fast":
            builder.dequantized_weight = self.form.weight(quantized.real, self.form.groups)
        step = self.step * quantized.scale * 2.0**cut.shift
        constant = np.zeros(1, np.int64)
        if not cut.shift:
            constant = self._whole_constant(quantized)
            if constant.any():
                accumulator = builder.add_constant(
                    accumulator, f"{self.op.inputs[1].name}_correction", constant, "_centred"
                )
        if not cut.shift and (quantized.zero_point.any() or constant.size > len(self.weight)):
            # The terms are correlated; what they can reach together is what the centred operands can.
            interval = self._reached(quantized.centred)
            accumulator = builder.narrow_range(accumulator, int(interval.min), int(interval.max))
        return builder.quantized(accumulator, self.form.along(step, rank))

    def _whole_constant(self, quantized: QuantizedWeight) -> Array:
        """-zx Y(1, Wq - zw), in steps of the accumulator."""
        centred = quantized.centred
        weighted: Array = np.broadcast_to(np.int64(0), centred.shape)
        if self.data.zero_points.any():
            zero_points = self._for_each_weight(self.data.zero_points * (1 if self.is_scaled else self.factors))
            weighted = centred * spread(zero_points, centred.ndim)
        return -self.form.totals(weighted, self.form.groups, self.op.type.rank)

    def _merged(self, quantized: QuantizedWeight, cut: _Cut, outputs: slice, slices: tuple[_Slice, ...]) -> Symbol:
        """The sum of the slices for the output channels of one group; of the whole where there is one slice."""
        builder = self.builder
        whole = len(slices) == len(cut.groups) == 1
        group = "" if len(cut.groups) == 1 else f"_group{outputs.start}"
        zero_points = quantized.zero_point[outputs, self._columns(slices[0])]
        # What all slices have in common multiplies the sum of their windows once; that is fewer terms, and exact.
        factors = quantized.factors[outputs]
        is_one = (quantized.zero_point[outputs] == zero_points[:, :1]).all() and (factors == factors[:1]).all()
        together = not cut.shift and bool(is_one)
        terms, windows = [], []
        for part in slices:
            suffix = "" if whole else f"{group}_slice{part.first}"
            data = self._part_of_data(part, suffix)
            term = self._products(quantized, data, outputs, part, suffix)
            zero_point = quantized.zero_point[outputs, self._columns(part).start]
            if zero_point.any():
                window = self._window(quantized, data, outputs, part, suffix)
                if together:
                    factor = self._factor(quantized, outputs, part)[:1]
                    windows.append(self._scaled(window, factor, f"{suffix}_window"))
                else:
                    term = self._corrected(term, window, zero_point, suffix)
            if cut.shift:
                term = self._shifted(quantized, term, outputs, part, cut.shift, suffix)
            else:
                term = self._scaled(term, self._factor(quantized, outputs, part), suffix)
            terms.append(term)
        total = terms[0] if len(terms) == 1 else builder.apply(AddN(), terms, group)
        if not windows:
            return total
        window = windows[0] if len(windows) == 1 else builder.apply(AddN(), windows, f"{group}_window")
        return self._corrected(total, window, zero_points[:, 0], group)

    def _part_of_data(self, part: _Slice, suffix: str) -> Symbol:
        if part.last - part.first == self.channels:
            return self.data.symbol
        cut = SliceAxis(axis=self.axis, begin=part.first, end=part.last)
        return self.builder.apply(cut, [self.data.symbol], f"{suffix}_data")

    def _products(self, quantized: QuantizedWeight, data: Symbol, outputs: slice, part: _Slice, suffix: str) -> Symbol:
        """Y(Xq, Wq) of one slice, in its own steps."""
        rows, groups = quantized.integers[outputs, self._columns(part)], self._groups_of(part)
        weight = self.builder.constant(f"{self.op.inputs[1].name}{suffix}", self.form.weight(rows, groups))
        return self.builder.apply(self.form.part(rows.shape[0], groups), [data, weight], suffix)

    def _window(self, quantized: QuantizedWeight, data: Symbol, outputs: slice, part: _Slice, suffix: str) -> Symbol:
        """window(Xq) of one slice: what the zero points of its weights are multiplied with."""
        rows, groups = quantized.integers[outputs, self._columns(part)], self._groups_of(part)
        ones = self.form.weight(np.ones((groups, *rows.shape[1:]), np.int64), groups)
        taps = self.builder.constant(f"{self.op.inputs[1].name}{suffix}_ones", ones)
        return self.builder.apply(self.form.part(groups, groups), [data, taps], f"{suffix}_window")

    def _corrected(self, term: Symbol, window: Symbol, zero_point: Array, suffix: str) -> Symbol:
        """term - zw window."""
        name = f"{self.op.inputs[1].name}{suffix}_zero_point"
        products = _spread(window, -zero_point, name, self.form, suffix, self.builder)
        return self.builder.apply(BroadcastAdd(), [term, products], f"{suffix}_corrected")

    def _scaled(self, term: Symbol, factor: Array, suffix: str) -> Symbol:
        """`term` in steps of the accumulator; factor: for each of its channels, or one."""
        if (factor == 1).all():
            return term
        same = factor[:1] if (factor == factor[0]).all() else factor
        operand = self.builder.constant(f"{self.op.name}{suffix}_factor", self.form.along(same, self.op.type.rank))
        return self.builder.apply(BroadcastMul(), [term, operand], f"{suffix}_scaled")

    def _shifted(
        self, quantized: QuantizedWeight, term: Symbol, outputs: slice, part: _Slice, shift: int, suffix: str
    ) -> Symbol:
        """`term` centred, in steps of 2^shift times the accumulator's, rounded half up.

        It is multiplied by its factor before the shift, as far as 32 bits allow; the rest of the shift comes first.
        """
        builder = self.builder
        constant = self._constant(quantized, outputs, part)
        if constant.any():
            term = builder.add_constant(term, f"{term.name}_correction", constant, f"{suffix}_centred")
        factor = self._factor(quantized, outputs, part)
        first = _shift_before(self._largest(quantized, outputs, part), factor, shift)
        shifted = builder.shifted(term, first, f"{suffix}_before")
        return builder.shifted(self._scaled(shifted, factor, suffix), shift - first, f"{suffix}_behind")


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


def _between(first: int, last: int, ends: Collection[int]) -> tuple[_Slice, ...]:
    """The slices of the channels first to last that end at `ends`."""
    inner = sorted(end for end in ends if first < end < last)
    return tuple(_Slice(a, b) for a, b in pairwise([first, *inner, last]))


def _sliced(bounds: Interval, axis: int, part: _Slice) -> Interval:
    """The interval of a slice along `axis`."""
    shape = tuple(part.last - part.first if i == axis else n for i, n in enumerate(bounds.shape))

    def cut(end: Array) -> Array:
        return end if end.shape[axis] == 1 else end.take(range(part.first, part.last), axis)

    return Interval(cut(bounds.lo), cut(bounds.hi), shape)


def _spread(sums: Symbol, factors: Array, name: str, form: Form, suffix: str, builder: IntegerBuilder) -> Symbol:
    """sums, one channel per group, times the factors of the output channels of each group."""
    axis, rank = form.channel_axis, sums.type.rank
    groups, channels = sums.shape[axis], len(factors)
    if groups in (1, channels):
        operand = builder.constant(name, form.along(factors, rank))
        return builder.apply(BroadcastMul(), [sums, operand], f"{suffix}_offset")
    spatial = sums.shape[axis + 1 :]
    apart = builder.apply(Reshape(shape=(0, groups, 1, *spatial)), [sums], f"{suffix}_groups")
    split = factors.reshape(1, groups, channels // groups, *(1,) * len(spatial))
    products = builder.apply(BroadcastMul(), [apart, builder.constant(name, split)], f"{suffix}_offset")
    return builder.apply(Reshape(shape=(0, channels, *spatial)), [products], f"{suffix}_merged")


def _largest_per_channel(bias: Array, op: Symbol, channel_axis: int) -> Array:
    """The largest |bias| of each output channel."""
    full = np.abs(np.broadcast_to(bias, op.shape))
    result: Array = full.max(axis=tuple(axis for axis in range(full.ndim) if axis != channel_axis))
    return result
