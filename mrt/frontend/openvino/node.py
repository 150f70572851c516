"""What a converter sees: one OpenVINO operator with its attributes, its inputs, and means to make symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mrt.errors import GraphError
from mrt.frontend.shared.node import Value, ValueNode
from mrt.frontend.shared.registry import Converters
from mrt.symbol import Symbol


@dataclass(frozen=True)
class Node(ValueNode):
    """One OpenVINO operator. Converters read it and make symbols through it; they see nothing else of the model."""

    kind: str
    """The operator's type, such as "Convolution", whatever its version."""
    attributes: Mapping[str, Any]
    dtypes: tuple[str, ...]
    """The dtype in the graph of each output that is read."""
    element_types: tuple[str, ...]
    """OpenVINO's type of each input; "boolean" for truth values, which the graph holds as 0 and 1."""

    @property
    def operator(self) -> str:
        return self.kind

    def has(self, index: int) -> bool:
        """Whether an optional input is given."""
        return index < len(self.inputs)

    def known_integers(self, index: int, role: str) -> tuple[int, ...]:
        value = self.known(index, role)
        if value.dtype.kind not in "iu":
            raise GraphError(f"{self.label}: input {role} is of dtype {value.dtype}; integers are needed")
        return tuple(value.reshape(-1).tolist())

    def known_axes(self, index: int, rank: int) -> tuple[int, ...]:
        """A known input of axes, each once, counted from the front and in order."""
        return tuple(sorted({self.axis(axis, rank) for axis in self.known_integers(index, "axes")}))

    def known_axis(self, index: int, rank: int) -> int:
        """A known input of one axis, counted from the front."""
        axes = self.known_integers(index, "axis")
        if len(axes) != 1:
            raise GraphError(f"{self.label}: input axis is {axes}; one axis is needed")
        return self.axis(axes[0], rank)

    def all_symbols(self) -> list[Symbol]:
        """Every input as a symbol."""
        return [self.symbol(index, f"input{index}") for index in range(len(self.inputs))]

    # Attributes

    def integer(self, name: str, default: int | None = None) -> int:
        return int(self._attribute(name, int, "an integer", default))

    def number(self, name: str, default: float | None = None) -> float:
        return float(self._attribute(name, (int, float), "a number", default))

    def flag(self, name: str, default: bool | None = None) -> bool:
        return bool(self._attribute(name, (bool, int), "true or false", default))

    def text(self, name: str, default: str | None = None) -> str:
        return str(self._attribute(name, str, "a word", default))

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        return tuple(int(item) for item in self._attribute(name, (list, tuple), "integers", default))

    def _attribute(self, name: str, kinds: Any, needed: str, default: Any) -> Any:
        value = self.attributes.get(name, default)
        if not isinstance(value, kinds):
            raise GraphError(f"{self.label}: attribute {name} is {value!r}; {needed} is needed")
        return value


Converter = Callable[[Node], Value]
"""Gives the value of an operator's output: a tuple where it has several."""

_CONVERTERS: Converters[Converter] = Converters("OpenVINO", "openvino")
converter = _CONVERTERS.register
"""Registers a function as the converter of OpenVINO operators, in every version that it has."""
find_converter = _CONVERTERS.find


def covered_operators() -> frozenset[str]:
    """The OpenVINO operators that have a converter."""
    return _CONVERTERS.operators
