"""What a converter of TVM's operators sees, in Relay and in Relax: a call with attributes that are read by name."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.node import ModelNode, ModelScope, Value
from mrt.symbol import Array, Symbol
from mrt.symbol.types import FLOAT_DTYPES


class TVMScope(ModelScope):
    """The values of one function while it is read. Known arrays are parameters once something needs them as symbols."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(names)
        # By identity of the array, which is kept beside so that the identity stays its own.
        self._titles: dict[int, tuple[Array, str]] = {}

    def entitle(self, array: Array, name: str) -> None:
        """Calls an array as the first variable that holds it."""
        self._titles.setdefault(id(array), (array, name))

    def parameter_of(self, array: Array, kind: str, transform: Callable[[Array], Array], title: str) -> Symbol:
        """The parameter `transform(array)`, made once per array and `kind` of transformation.

        It is called after the variable that holds the array, or `title` where none does.
        """
        _, name = self._titles.get(id(array), (array, ""))
        if not name or kind:
            name = self.made_up(f"{name}_{kind}" if name else title)
        return self.parameter_once((id(array), kind), array, transform, name)

    def symbol(self, value: Value, title: str) -> Symbol:
        """The symbol of a value; an array becomes a parameter, once."""
        if isinstance(value, Symbol):
            return value
        if isinstance(value, tuple):
            raise GraphError(f"{title}: a tuple is given; a tensor is needed")
        return self.parameter_of(value, "", lambda array: array, title)


@dataclass(frozen=True)
class TVMNode(ModelNode):
    """One call of an operator. Relay and Relax add how its attributes are read."""

    scope: TVMScope
    inputs: tuple[Value, ...]

    @property
    @abstractmethod
    def kind(self) -> str:
        """The operator without what the format puts before its name."""

    # Inputs

    def input(self, index: int) -> Value:
        """An input; GraphError if it is not given."""
        if index >= len(self.inputs):
            raise GraphError(f"{self.label}: input {index} is missing; the module is malformed")
        return self.inputs[index]

    def symbol(self, index: int, role: str = "constant") -> Symbol:
        return self.scope.symbol(self.input(index), f"{self.name}_{role}")

    def symbols(self, index: int, role: str = "constant") -> list[Symbol]:
        """The items of an input that is a tuple of tensors."""
        return [self.scope.symbol(item, f"{self.name}_{role}{place}") for place, item in enumerate(self.items(index))]

    def items(self, index: int) -> tuple[Value, ...]:
        """An input that is a tuple of one or more."""
        value = self.input(index)
        if not isinstance(value, tuple) or not value:
            raise GraphError(f"{self.label}: input {index} is no tuple of tensors; one is needed")
        return value

    def parameter_of(self, index: int, role: str, kind: str, transform: Callable[[Array], Array]) -> Symbol:
        return self.scope.parameter_of(self.known(index, role), kind, transform, f"{self.name}_{role}")

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
