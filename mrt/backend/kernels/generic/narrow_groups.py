"""Groups of fewer channels than vectors have lanes: neighbours are one group, most of whose weights are 0."""

from __future__ import annotations

import numpy as np
from tvm import tirx

from mrt.backend.kernels.dot_instructions import Dot
from mrt.backend.tir.expressions import Expression
from mrt.symbol import Array

MOST_MERGED = 32
"""Groups of channels that become one at most: of products one by one, an instruction forms more in the same time."""


def merged_groups(weight: Array, groups: int, dot: Dot, length: int) -> tuple[Array, int]:
    """The weight (O, I, taps...) of fewer groups, each of which fills lanes and dots, and how many they are.

    length: output channels that memory has, 0 behind those of the weight; there are as many rows at least, of groups of
    zeros.

    Neighbours become one group, whose weights are 0 where an output does not read an input: all of them where no fewer
    fill lanes. More than MOST_MERGED do not: groups are as they were then. The last group may have fewer outputs than
    others, and rows of 0 instead; it reads the last inputs, as many as others do (see `first_channel`).
    """
    outputs, inputs, *taps = weight.shape
    per_group = outputs // groups

    def fills(count: int) -> bool:
        starts = groups * inputs if groups % count else count * inputs
        return not (count * per_group % dot.lanes or count * inputs % dot.depth or starts % dot.depth)

    merged = next((count for count in range(1, groups) if fills(count)), groups)
    if merged == 1 or merged > MOST_MERGED:
        return _filled(weight, groups, length)
    fewer = -(-groups // merged)
    made = np.zeros((fewer, merged, per_group, merged, inputs, *taps), weight.dtype)
    for group, rows in enumerate(weight.reshape(groups, per_group, inputs, *taps)):
        place, within = divmod(group, merged)
        first = min(place * merged, groups - merged)
        made[place, within, :, group - first] = rows
    return _filled(made.reshape(fewer * merged * per_group, merged * inputs, *taps), fewer, length)


def _filled(weight: Array, groups: int, length: int) -> tuple[Array, int]:
    """The weight with groups of zeros behind, until it has so many rows."""
    per_group, missing = len(weight) // groups, length - len(weight)
    if groups == 1 or missing <= 0:
        return weight, groups
    more = -(-missing // per_group)
    return np.pad(weight, [(0, more * per_group), *((0, 0) for _ in weight.shape[1:])]), groups + more


def first_channel(group: Expression, groups: int, depth: int, channels: int) -> Expression:
    """Of the data that a group reads, of so many `channels`: as all groups read `depth`, the last may share some."""
    first = group * depth
    return first if groups * depth == channels else tirx.min(first, channels - depth)
