"""What the exporters of every format see of a symbol, and the values of the symbols that were written before it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.export.lowering import Arrangement, Value
from mrt.symbol import Array, Graph, Interval, Symbol
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


class ArrangingNode(SymbolNode, Arrangement[Value]):
    """A symbol's node in a format that moves elements."""

    @abstractmethod
    def input(self, index: int) -> Value:
        """The value of an input in a dtype that holds it."""


class SymbolValues(ABC, Generic[Value]):
    """The value of every symbol of the integer graph that was written so far."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._values: dict[Symbol, Value] = {}

    def define(self, symbol: Symbol, value: Value) -> None:
        self._values[symbol] = value

    def value(self, symbol: Symbol) -> Value:
        """The symbol's value; a parameter becomes one where it is read first."""
        if symbol not in self._values:
            array = self._graph.value(symbol)
            if array is None:
                raise GraphError(f"{symbol.name} is read before it is made")
            self._values[symbol] = self.of_parameter(symbol, array)
        return self._values[symbol]

    @abstractmethod
    def of_parameter(self, symbol: Symbol, array: Array) -> Value:
        """The value of a parameter."""
