"""What the layers share: a weight that the data is multiplied with, and a bias that they may add."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, cast

from typing_extensions import Self

from mrt.symbol.interval import Array
from mrt.symbol.operator import Operator


class Layer(Operator, ABC):
    """Base of the operators of data (N, C, ...), a weight and, unless `no_bias`, a bias of one value a channel.

    The subclasses repeat the field, since a dataclass declares its own.
    """

    no_bias: bool

    input_names = ("data", "weight", "bias")

    def channel_axis(self) -> int:
        return 1

    def data_channel_axis(self, rank: int) -> int:
        return 1

    def with_bias(self, has_bias: bool) -> Self:
        """The layer with or without a bias."""
        return self._with(no_bias=not has_bias)

    @abstractmethod
    def part(self, outputs: int, groups: int) -> Self:
        """The layer for so many output channels in so many groups."""

    def rows(self, weight: Array) -> Array:
        """A weight with its output channels first: (O, I, *kernel), I those that one of them is summed over."""
        return weight

    def from_rows(self, rows: Array) -> Array:
        """The weight that has these rows; it undoes `rows`."""
        return rows

    def _with(self, **attributes: Any) -> Self:
        # Only the subclasses declare the attributes, to `replace` and to type checkers.
        made: Self = replace(cast(Any, self), **attributes)
        return made
