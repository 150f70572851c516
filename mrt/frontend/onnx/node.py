"""What a converter sees: one ONNX node with its attributes, its inputs, and means to make symbols."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from mrt.errors import GraphError
from mrt.frontend.onnx.constants import Budget, is_standard
from mrt.frontend.onnx.files import read_tensor
from mrt.frontend.shared.node import ModelNode, ModelScope
from mrt.frontend.shared.registry import Converters
from mrt.symbol import Array, Operator, Symbol, TensorType
from mrt.symbol.types import INTEGER_DTYPES

Value = Symbol | Array
"""What is known of an ONNX value: a symbol of the graph, or an array where it does not depend on the data."""


_FLOATS = frozenset({"FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE"})


class Scope(ModelScope):
    """The values of one ONNX graph while it is read, by name."""

    def __init__(self, names: Iterable[str], opset: int, folder: Path | None, is_exact: bool = False) -> None:
        """`names`: all names of ONNX values; `folder`: where external data lie; `is_exact`: whether none is a float."""
        super().__init__(names)
        self.is_exact = is_exact
        self.opset = opset
        self.folder = folder
        self.budget = Budget()
        self._values: dict[str, Value] = {}

    def input(self, name: str, type: TensorType) -> None:
        self._values[name] = self.graph_input(name, type)

    def given(self, tensor: onnx.TensorProto) -> Array:
        """The values of a tensor that the file holds."""
        array = read_tensor(tensor, self.folder)
        self.budget.grant(array.size)
        return array

    def define(self, name: str, value: Value) -> None:
        self._values[name] = value

    def value(self, name: str) -> Value:
        return self._values[name]

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def is_known(self, name: str) -> bool:
        """Whether there is a value of this name which does not depend on the data."""
        return name in self._values and not isinstance(self._values[name], Symbol)

    def symbol(self, name: str) -> Symbol:
        """The symbol of a value; an array becomes a parameter of its name, once."""
        value = self._values[name]
        if isinstance(value, Symbol):
            return value
        return self.parameter_of(name, "", lambda array: array)

    def parameter_of(self, name: str, kind: str, transform: Callable[[Array], Array]) -> Symbol:
        """The parameter `transform(array)` of a known value, made once per value and `kind` of transformation."""
        value = self._values[name]
        if isinstance(value, Symbol):
            raise GraphError(f"{name} depends on the data; a constant is needed")
        title = self.made_up(f"{name}_{kind}") if kind else name
        return self.parameter_once((name, kind), value, transform, title)


@dataclass(frozen=True)
class Node(ModelNode):
    """One ONNX node. Converters read it and make symbols through it; they see nothing else of the model."""

    scope: Scope
    proto: onnx.NodeProto

    @property
    def operator(self) -> str:
        return str(self.proto.op_type)

    @property
    def key(self) -> str:
        """The operator with its domain, as converters are registered."""
        return _key(self.proto)

    @property
    def label(self) -> str:
        return f"{self.proto.name or self.name} ({self.operator})"

    @property
    def opset(self) -> int:
        return self.scope.opset

    # Inputs

    def has(self, index: int) -> bool:
        """Whether an optional input is given."""
        return index < len(self.proto.input) and self.proto.input[index] != ""

    def input(self, index: int) -> Value:
        """An input as a symbol or array; GraphError if it is not given."""
        if not self.has(index):
            raise GraphError(f"{self.label}: input {index} is missing; the model is malformed")
        return self.scope.value(self.proto.input[index])

    def symbol(self, index: int, role: str = "constant") -> Symbol:
        """An input as a symbol; a known array becomes a parameter of its own name, which each ONNX value has."""
        self.input(index)
        return self.scope.symbol(self.proto.input[index])

    def symbols(self) -> list[Symbol]:
        return [self.symbol(index) for index in range(len(self.proto.input))]

    def parameter_of(self, index: int, role: str, kind: str, transform: Callable[[Array], Array]) -> Symbol:
        return self.scope.parameter_of(self.proto.input[index], kind, transform)

    def given_integers(self, index: int, role: str) -> tuple[int, ...] | None:
        """A known input as integers, None if it is not given."""
        return self.known_integers(index, role) if self.has(index) else None

    def given_number(self, index: int, role: str) -> float | None:
        """A known input of one element, None if it is not given."""
        return self.known_number(index, role) if self.has(index) else None

    # Attributes

    def integer(self, name: str, default: int) -> int:
        value = self._attribute(name, onnx.AttributeProto.INT, "an integer", default)
        return int(value)

    def number(self, name: str, default: float) -> float:
        value = self._attribute(name, onnx.AttributeProto.FLOAT, "a float", default)
        return float(value)

    def text(self, name: str, default: str) -> str:
        value = self._attribute(name, onnx.AttributeProto.STRING, "a string", default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else default

    def integers(self, name: str) -> tuple[int, ...] | None:
        """A list of integers, None if the attribute is not there."""
        value = self._attribute(name, onnx.AttributeProto.INTS, "integers", None)
        return None if value is None else tuple(int(item) for item in value)

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of floats, empty if the attribute is not there."""
        value = self._attribute(name, onnx.AttributeProto.FLOATS, "floats", ())
        return tuple(float(item) for item in value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings, empty if the attribute is not there."""
        value = self._attribute(name, onnx.AttributeProto.STRINGS, "strings", ())
        return tuple(item.decode("utf-8", "replace") for item in value)

    def dtype(self, name: str, default: str) -> str:
        """A tensor data type as the graph has it, where every float is float32; `default` if the attribute is not
        there. UnsupportedOperatorError for a type that the graph does not have.
        """
        target = self.integer(name, -1)
        if target == -1:
            return default
        if target not in onnx.TensorProto.DataType.values():
            raise GraphError(f"{self.label}: attribute {name} is {target}; a tensor data type is needed")
        word = onnx.TensorProto.DataType.Name(target)
        dtype = "float32" if word in _FLOATS else word.lower()
        if dtype != "float32" and dtype not in INTEGER_DTYPES:
            raise self.unsupported(f"attribute {name}", word, "a float, signed integer, UINT8 or BOOL")
        return dtype

    def _attribute(self, name: str, kind: int, needed: str, default: Any) -> Any:
        for attribute in self.proto.attribute:
            if attribute.name != name:
                continue
            if attribute.type != kind:
                found = onnx.AttributeProto.AttributeType.Name(attribute.type)
                raise GraphError(f"{self.label}: attribute {name} is {found}; {needed} is needed")
            return onnx.helper.get_attribute_value(attribute)
        return default

    def tensor(self, tensor: onnx.TensorProto) -> Array:
        """The values of a tensor attribute."""
        return self.scope.given(tensor)

    # Making symbols

    def apply(self, operator: Operator, inputs: Sequence[Symbol], suffix: str = "", output: int = 0) -> Symbol:
        """A new symbol, under the name of one of the node's outputs or, with a suffix, one made from it."""
        return self.scope.apply(operator, inputs, self.proto.output[output] or self.name, suffix)


Converter = Callable[[Node], "Value | tuple[Value, ...]"]
"""Gives the value of the first output alone, of which the node may then have no other in use, or of every output."""

_CONVERTERS: Converters[Converter] = Converters("ONNX", "onnx")
converter = _CONVERTERS.register
"""Registers a function as the converter of ONNX operators, those of other domains as "DOMAIN.OPERATOR"."""


def covered_operators(others: bool = False) -> frozenset[str]:
    """The operators that have a converter: those of ONNX itself, or those of other domains."""
    return frozenset(name for name in _CONVERTERS.operators if ("." in name) == others)


_EXACT_CONVERTERS: Converters[Converter] = Converters("ONNX's integer", "onnx")
exact_converter = _EXACT_CONVERTERS.register
"""`converter` in models of integers alone; operators that are none are converted as in every model."""


def find_converter(proto: onnx.NodeProto, is_exact: bool = False) -> Converter | None:
    """is_exact: whether the model is one of integers alone."""
    exact = _EXACT_CONVERTERS.find(_key(proto)) if is_exact else None
    return exact or _CONVERTERS.find(_key(proto))


def _key(proto: onnx.NodeProto) -> str:
    return str(proto.op_type if is_standard(proto) else f"{proto.domain}.{proto.op_type}")
