"""What a converter of TVM's operators sees, in Relay and in Relax: a call with attributes that are read by name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.shared.node import Value, ValueNode
from mrt.symbol.types import FLOAT_DTYPES


@dataclass(frozen=True)
class TVMNode(ValueNode):
    """One call of an operator. Relay and Relax add how its attributes are read."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """The operator without what the format puts before its name."""

    # Attributes

    @abstractmethod
    def integer(self, name: str) -> int:
        """An attribute that is an integer."""

    @abstractmethod
    def integers(self, name: str) -> tuple[int, ...] | None:
        """An attribute that is a list of integers, None where it is not given."""

    @abstractmethod
    def number(self, name: str) -> float:
        """An attribute that is a number."""

    @abstractmethod
    def flag(self, name: str) -> bool:
        """An attribute that is True or False."""

    @abstractmethod
    def text(self, name: str) -> str:
        """An attribute that is a word, such as a layout."""

    def sizes(self, name: str) -> tuple[int, ...]:
        """An attribute that is a list of integers and always given."""
        values = self.integers(name)
        if values is None:
            raise GraphError(f"{self.label}: attribute {name} is missing; the module is malformed")
        return values

    def optional_integer(self, name: str) -> int | None:
        """An attribute that is an integer or not given, in which case TVM stores None."""
        return None if self.is_none(name) else self.integer(name)

    @abstractmethod
    def is_none(self, name: str) -> bool:
        """Whether an attribute is not given."""

    def axes(self, name: str, rank: int) -> tuple[int, ...]:
        """An attribute that names axes, counted from the front and sorted; all of them where it is not given."""
        given = self.integers(name)
        return tuple(range(rank)) if given is None else tuple(sorted({self.axis(axis, rank) for axis in given}))

    # The result

    @property
    @abstractmethod
    def result_dtype(self) -> str:
        """The dtype of the one output in the graph."""


def graph_dtype(dtype: str) -> str:
    """A TVM dtype in the graph: every float is float32."""
    return "float32" if dtype in FLOAT_DTYPES | {"bfloat16"} else dtype


def is_known(values: Iterable[Value]) -> bool:
    """Whether none of the values depends on the data."""
    return all(is_known(value) if isinstance(value, tuple) else isinstance(value, np.ndarray) for value in values)


def item_of(value: Value, index: int) -> Value:
    """An item of a tuple value."""
    if not isinstance(value, tuple) or not 0 <= index < len(value):
        raise GraphError(f"item {index} of a value that is no tuple of so many; the module is malformed")
    return value[index]
