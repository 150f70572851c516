"""The operands of a reduction: which channel of the data each weight is multiplied with, and at which scale."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from expansions.reduction.form import Form
from mrt.quantization.integer.quantized import Quantized
from mrt.symbol import Array, Interval, Symbol


@dataclass(frozen=True, eq=False)
class Reach:
    """From the centred integers of a weight to the accumulator's interval, for each output channel.

    bounds: of the integers of the data. factors: by which products of each data channel are multiplied.
    """

    form: Form
    bounds: Interval
    zero_points: Array
    factors: Array

    def __call__(self, centred: Array) -> Interval:
        data = self.bounds.map(lambda bound: (bound - self.zero_points) * self.factors)
        weight = Interval.constant(self.form.weight(centred, self.form.groups))
        bounds: Interval = self.form.operator.bounds(data, weight)
        return bounds.reduced([self.form.channel_axis])


@dataclass(frozen=True, eq=False)
class Operands:
    """op: the reduction. bounds: of the integers of the data. weight: float, its output channels first, (O, I, ...)."""

    op: Symbol
    data: Quantized
    bounds: Interval
    weight: Array
    form: Form

    @property
    def output_count(self) -> int:
        """How many output channels there are."""
        return len(self.weight)

    @cached_property
    def axis(self) -> int:
        """The channel axis of the data."""
        axis: int = self.form.operator.data_channel_axis(self.data.symbol.type.rank)
        return axis

    @cached_property
    def channels(self) -> int:
        """Of the data."""
        return self.data.symbol.shape[self.axis]

    @property
    def width(self) -> int:
        """How many channels of the data each of the operator's groups reads."""
        return self.channels // self.form.groups

    @cached_property
    def columns_per_channel(self) -> int:
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
        return self.for_each_weight(self.factors)

    @cached_property
    def is_scaled(self) -> bool:
        """Whether the operator's groups read one factor each, which then goes to the scale of their outputs."""
        return self.form.groups > 1 and bool((self.read == self.read[:, :1]).all())

    @property
    def summed_factors(self) -> Array:
        """`factors` as far as products are multiplied by them before they are added."""
        return np.ones((1,) * self.factors.ndim, np.int64) if self.is_scaled else self.factors

    @cached_property
    def step(self) -> Array:
        """(O,), the scale of the data as the accumulator of each output channel counts it."""
        return self.data.step * (self.read[:, 0] if self.is_scaled else np.ones(self.output_count))

    def for_each_weight(self, values: Array) -> Array:
        """(O, I): the value, one or one for each data channel, of what each weight is multiplied with."""
        if values.size == 1:
            return np.broadcast_to(values.reshape(1, 1), self.weight.shape[:2])
        outputs, groups = self.weight.shape[0], self.form.groups
        each = np.broadcast_to(values.reshape(-1), (self.channels,)).reshape(groups, -1)
        return np.repeat(np.repeat(each, outputs // groups, axis=0), self.columns_per_channel, axis=1)

    @property
    def reach(self) -> Reach:
        """What the accumulator reaches."""
        return Reach(self.form, self.bounds, self.data.zero_points, self.summed_factors)

    def reached(self, centred: Array) -> Interval:
        """The accumulator's interval, for each output channel, for a weight of these centred integers."""
        return self.reach(centred)
