"""The ways to cut a reduction into slices of channels, whose sums are formed one by one and then added."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from expansions.reduction.operands import Operands
from mrt.quantization.options import WeightConfig

MOST_SHIFT = 8
"""Partial sums lose at most this many bits before they are added; beyond that the weights lose bits instead."""
EVEN_PARTS = (2, 4, 8, 16)
"""Into how many slices of one length a sum is cut that has no other ends."""


@dataclass(frozen=True)
class Slice:
    """Some channels of the data and the output channels that they feed.

    first, last: of the data, last excluded. outputs: the output channels. columns: the elements of their rows' axis 1
    that the data is multiplied with. groups: how many of the operator's own groups it holds: all, or it lies within
    one.
    """

    first: int
    last: int
    outputs: slice
    columns: slice
    groups: int = 1


@dataclass(frozen=True)
class Cut:
    """How a reduction is sliced: the output groups, each with its slices, and by how much partial sums are shifted."""

    groups: tuple[tuple[Slice, ...], ...]
    shift: int = 0

    @property
    def terms(self) -> int:
        """How many partial sums are added for one output."""
        return max(len(slices) for slices in self.groups)


def weight_ends(operands: Operands, options: WeightConfig) -> list[int]:
    """Where the groups of input channels that share a weight scale end, along axis 1 of a row."""
    inputs = operands.weight.shape[1]
    if options.channel_step is None:
        return [inputs]
    step = options.channel_step * operands.columns_per_channel
    return [*range(step, inputs, step), inputs]


def cuts(operands: Operands, options: WeightConfig) -> Iterator[Cut]:
    """The ways to slice the sum, the most exact first.

    1. Where the operator's own groups read one scale each: not at all.
    2. Where the scales of data and weight change within one output's sum.
    3. The same with shifted partial sums; in even parts where that is one slice.
    """
    ends = weight_ends(operands, options)
    if operands.form.groups > 1 and len(ends) == 1 and (operands.is_scaled or operands.data.groups is None):
        yield Cut(((_whole(operands),),))
        return
    of_weight = _in_every_group(operands, (end // operands.columns_per_channel for end in ends))
    cut = _cut(operands, of_weight | _data_ends(operands))
    yield cut
    if cut.terms > 1:
        yield from (replace(cut, shift=shift) for shift in range(1, MOST_SHIFT + 1))
        return
    for shift in range(1, MOST_SHIFT + 1):
        for count in (count for count in EVEN_PARTS if count <= operands.width):
            even = _in_every_group(operands, (operands.width * part // count for part in range(count)))
            yield replace(_cut(operands, even), shift=shift)


def _whole(operands: Operands) -> Slice:
    """All channels, in all of the operator's groups."""
    outputs, columns = operands.weight.shape[:2]
    return Slice(0, operands.channels, slice(0, outputs), slice(0, columns), operands.form.groups)


def _cut(operands: Operands, ends: Iterable[int]) -> Cut:
    """Slices, within each of the operator's groups, that end at these channels of the data."""
    width, each, columns = operands.width, operands.output_count // operands.form.groups, operands.columns_per_channel
    wanted, groups = sorted(ends), []
    for group in range(operands.form.groups):
        start, outputs = group * width, slice(group * each, (group + 1) * each)
        bounds = [0, *(end - start for end in wanted if start < end < start + width), width]
        groups.append(
            tuple(
                Slice(start + first, start + last, outputs, slice(first * columns, last * columns))
                for first, last in pairwise(bounds)
            )
        )
    return Cut(tuple(groups))


def _in_every_group(operands: Operands, ends: Iterable[int]) -> set[int]:
    """Channels of the data that lie in each of the operator's groups where `ends` lie in the first."""
    wanted = set(ends)
    return {start + end for start in range(0, operands.channels, operands.width) for end in wanted}


def _data_ends(operands: Operands) -> set[int]:
    """Where neighbouring channels of the data have another scale; zero points may differ within a slice."""
    factors = np.broadcast_to(operands.factors.reshape(-1), (operands.channels,))
    return {int(end) + 1 for end in np.flatnonzero(np.diff(factors))}
