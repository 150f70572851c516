"""What a converter sees: one TFLite operator with its options, its inputs, and means to make symbols."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mrt.errors import GraphError
from mrt.frontend.shared.node import Value, ValueNode
from mrt.frontend.shared.refusals import check_size
from mrt.frontend.shared.registry import Converters
from mrt.frontend.tflite.files import Options, StoredOperator, Tensor
from mrt.symbol import Symbol

_MAX_PLACES = 2**18
"""So many places along one axis may be computed one by one: two numbers of a file may ask for any amount."""

NOTHING: Value = ()
"""What stands for an input that is left out."""


@dataclass(frozen=True)
class Node(ValueNode):
    """One TFLite operator. Converters read it and make symbols through it; they see nothing else of the model."""

    stored: StoredOperator
    outputs: tuple[Tensor, ...]
    """What the file says of the results."""

    @property
    def operator(self) -> str:
        return self.stored.kind

    # Inputs

    def has(self, index: int) -> bool:
        """Whether an optional input is given."""
        return index < len(self.inputs) and self.inputs[index] is not NOTHING

    def input(self, index: int) -> Value:
        if not self.has(index):
            raise GraphError(f"{self.label}: input {index} is missing; the model is malformed")
        return self.inputs[index]

    def all_symbols(self) -> list[Symbol]:
        """Every input as a symbol; GraphError where there is none."""
        return [self.symbol(index, f"input{index}") for index in range(max(len(self.inputs), 1))]

    def known_integers(self, index: int, role: str) -> tuple[int, ...]:
        value = self.known(index, role)
        if value.dtype.kind != "i":
            raise GraphError(f"{self.label}: input {role} is of dtype {value.dtype}; integers are needed")
        return tuple(value.reshape(-1).tolist())

    def known_axis(self, index: int, rank: int) -> int:
        """A known input of one integer that names an axis, counted from the front."""
        axes = self.known_integers(index, "axis")
        if len(axes) != 1:
            raise GraphError(f"{self.label}: input axis is {axes}; one axis is needed")
        return self.axis(axes[0], rank)

    def places(self, count: int) -> int:
        """A length whose places are computed one by one; GraphError where it is no length or too large."""
        if count < 1:
            raise GraphError(f"{self.label}: an axis of length {count} is asked for; 1 or more is needed")
        check_size(self.label, (count,), _MAX_PLACES)
        return count

    # Attributes

    def options(self, kind: str) -> Options:
        """The options by the schema's name of their table, such as "Conv2DOptions"."""
        return self.stored.options(kind, self.label)


Converter = Callable[[Node], Value]
"""Gives the value of an operator's output: a tuple where it has several."""

_CONVERTERS: Converters[Converter] = Converters("TFLite", "tflite")
converter = _CONVERTERS.register
"""Registers a function as the converter of TFLite operators, named as in the schema."""
find_converter = _CONVERTERS.find


def covered_operators() -> frozenset[str]:
    """The TFLite operators that are read."""
    return _CONVERTERS.operators
