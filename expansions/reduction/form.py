"""What differs between reductions: how their weights lie, and the operator for a part of their channels."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mrt.symbol import Array, Operator
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.deconvolution import Deconvolution
from mrt.symbol.operators.linear import FullyConnected


@dataclass(frozen=True, eq=False)
class Form:
    """That of weights whose output channels come first, (O, I, *kernel).

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
