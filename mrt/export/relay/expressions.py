"""Relay expressions with their types, as Relay's printer writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

Attribute = Union[bool, int, float, str, None, "Sequence[Attribute]"]


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor. dtype: NumPy's name, which is Relay's too."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def type(self) -> str:
        return tensor_type(self.shape, self.dtype)


@dataclass(frozen=True, eq=False)
class Argument(Value):
    """An argument of the function: an input, or a parameter that stands in the parameter file."""

    name: str


@dataclass(frozen=True, eq=False)
class Scalar(Value):
    """A number of 32 bits, written where it is used."""

    number: int = 0


@dataclass(frozen=True, eq=False)
class Call(Value):
    """A call of an operator. is_tuple: whether the inputs are given as one tuple."""

    operator: str
    inputs: tuple[Value, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    is_tuple: bool = False


def tensor_type(shape: Sequence[int], dtype: str) -> str:
    """A tensor's type; a shape of one axis has no comma at its end, a rank of 0 is the dtype alone."""
    return f"Tensor[({', '.join(map(str, shape))}), {dtype}]" if shape else dtype


def tuple_type(types: Sequence[str]) -> str:
    return f"({', '.join(types)}{',' if len(types) == 1 else ''})"


def attribute_text(value: Attribute) -> str:
    """An attribute's value as Relay prints it: whole floats have no point, but a suffix unlike integers."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, float):
        return f"{value:g}f"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(attribute_text, value))}]"
    return str(value)
