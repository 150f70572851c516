"""What the exporters of every format see of a symbol, and the scalars of its operator as integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mrt.errors import UnsupportedOperatorError
from mrt.symbol import Interval, Symbol
from mrt.symbol.types import INT32_MAX, INT32_MIN


@dataclass(frozen=True)
class SymbolNode:
    """One symbol of the integer graph with the intervals of all symbols by name; formats add how it is written."""

    symbol: Symbol
    intervals: Mapping[str, Interval]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.symbol.shape

    def input_shape(self, index: int) -> tuple[int, ...]:
        return self.symbol.inputs[index].shape

    @property
    def input_count(self) -> int:
        return len(self.symbol.inputs)

    def bounds(self, index: int) -> Interval:
        """What an input is proven to lie in."""
        return self.intervals[self.symbol.inputs[index].name]

    def number(self, scalar: float) -> int:
        """A scalar attribute as an integer; UnsupportedOperatorError where 32 bits do not hold it."""
        if not INT32_MIN <= scalar <= INT32_MAX:
            raise UnsupportedOperatorError(
                f"{self.symbol.name} ({self.symbol.op}): the scalar {scalar} is no integer of 32 bits"
            )
        return int(scalar)
