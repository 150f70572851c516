"""What differs between reductions: how their weights lie, and the operator for a part of their channels."""

from __future__ import annotations

from dataclasses import dataclass

from mrt.symbol import Array
from mrt.symbol.operators.layer import Layer


@dataclass(frozen=True, eq=False)
class Form:
    """How a reduction's weights lie: output channels first, (O, I, *kernel).

    operator: of the symbol. channel_axis: of the output. groups: the operator's own channel groups.
    """

    operator: Layer
    channel_axis: int
    groups: int = 1
    kernel: tuple[int, ...] = ()

    def part(self, outputs: int, groups: int) -> Layer:
        """The operator for so many output channels in so many groups."""
        return self.operator.part(outputs, groups)

    def rows(self, weight: Array) -> Array:
        """The operator's weight with its output channels first."""
        return self.operator.rows(weight)

    def weight(self, rows: Array, groups: int) -> Array:
        """The weight of `part` that has these rows."""
        return self.part(len(rows), groups).from_rows(rows)

    def totals(self, rows: Array, groups: int, rank: int) -> Array:
        """What `part` gives for data of ones, as an operand of rank `rank`: at every position the row's sum."""
        return self.along(rows.reshape(rows.shape[0], -1).sum(axis=1), rank)

    def along(self, values: Array, rank: int) -> Array:
        """One value for each output channel, as an operand of rank `rank`."""
        return values.reshape(tuple(-1 if axis == self.channel_axis else 1 for axis in range(rank)))
