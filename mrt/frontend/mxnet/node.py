"""What a converter sees: one MXNet node with its attributes, its inputs, and means to make symbols."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mrt.errors import GraphError, ModelFileError
from mrt.frontend.shared.node import ModelNode, ModelScope
from mrt.frontend.shared.registry import Converters
from mrt.symbol import Array, Operator, Symbol, TensorType
from mrt.symbol.operator import parse_attribute, parse_operator
from mrt.symbol.symbol_json import JsonNode, Reference

Value = Symbol | Array
"""What is known of an output of a node: a symbol of the graph, or an array where it does not depend on the data."""


class Scope(ModelScope):
    """The values of one symbol file while it is read, by the output that gives them."""

    def __init__(self, names: Iterable[str], parameters: Mapping[str, Array], keep_float64: bool = False) -> None:
        """`names`: all names of nodes; `parameters`: arrays by the names of their variables."""
        super().__init__(names, keep_float64)
        self.parameters = parameters
        self._values: dict[Reference, Value] = {}
        self._titles: dict[Reference, str] = {}

    def input(self, reference: Reference, name: str, type: TensorType) -> None:
        self._values[reference] = self.graph_input(name, type)

    def define(self, reference: Reference, value: Value, name: str) -> None:
        self._values[reference] = value
        self._titles[reference] = name

    def value(self, reference: Reference) -> Value | None:
        return self._values.get(reference)

    def symbol(self, reference: Reference) -> Symbol:
        """The symbol of a value; an array becomes a parameter of its name, once."""
        value = self._values[reference]
        return value if isinstance(value, Symbol) else self.parameter_of(reference, "", lambda array: array)

    def parameter_of(self, reference: Reference, kind: str, transform: Callable[[Array], Array]) -> Symbol:
        """The parameter `transform(array)` of a known value, made once per value and `kind` of transformation."""
        value, name = self._values[reference], self._titles.get(reference, "")
        if isinstance(value, Symbol):
            raise GraphError(f"{value.name} depends on the data; a constant is needed")
        return self.parameter_once(
            (reference, kind), value, transform, self.made_up(f"{name}_{kind}") if kind else name
        )

    def auxiliary(self, name: str) -> Symbol:
        """The auxiliary state that a file before MXNet 0.9 does not name, as a parameter."""
        if name not in self.parameters:
            raise ModelFileError(f"parameter {name} is missing; it must stand in the parameter file")
        return self.parameter_once((name, "auxiliary"), self.parameters[name], lambda array: array, name)


@dataclass(frozen=True)
class Node(ModelNode):
    """One MXNet node. Converters read it and make symbols through it; they see nothing else of the model."""

    scope: Scope
    json: JsonNode
    attributes: Mapping[str, str]
    """The operator's attributes, those of users left out."""
    used: Sequence[int]
    """Which of the node's outputs are read, in order."""

    @property
    def operator(self) -> str:
        return self.json.op

    # Inputs

    @property
    def input_count(self) -> int:
        return len(self.json.inputs)

    def has(self, index: int) -> bool:
        return index < self.input_count

    def input(self, index: int) -> Value:
        """An input as a symbol or array; GraphError if it is not given."""
        value = self.scope.value(self._reference(index))
        if value is None:
            raise GraphError(f"{self.label}: input {index} is missing; the symbol file is malformed")
        return value

    def symbol(self, index: int, role: str = "constant") -> Symbol:
        """An input as a symbol; a known array becomes a parameter of its variable's name."""
        self.input(index)
        return self.scope.symbol(self._reference(index))

    def symbols(self) -> list[Symbol]:
        return [self.symbol(index) for index in range(self.input_count)]

    def only_symbol(self) -> Symbol:
        """The one input; GraphError where there are others."""
        if self.input_count != 1:
            raise GraphError(f"{self.label}: has {self.input_count} inputs; one is needed")
        return self.symbol(0)

    def parameter_of(self, index: int, role: str, kind: str, transform: Callable[[Array], Array]) -> Symbol:
        return self.scope.parameter_of(self._reference(index), kind, transform)

    def auxiliary(self, role: str) -> Symbol:
        """An auxiliary state that is no input: a parameter called after the node."""
        return self.scope.auxiliary(f"{self.name}_{role}")

    def _reference(self, index: int) -> Reference:
        if not self.has(index):
            raise GraphError(f"{self.label}: input {index} is missing; the symbol file is malformed")
        return self.json.inputs[index]

    # Attributes

    def record(self, name: str = "", **changes: str | None) -> Operator:
        """The record of the node's operator, or of `name`, with the node's attributes.

        changes: attributes as texts that replace the node's; None takes one away. Raises GraphError, naming the node,
        where an attribute is unknown or malformed.
        """
        attributes = {key: text for key, text in {**self.attributes, **changes}.items() if text is not None}
        try:
            return parse_operator(name or self.operator, attributes)
        except GraphError as error:
            raise GraphError(f"{self.label}: {error}") from None

    def integer(self, name: str, default: int | None = None) -> int:
        return int(self._attribute(name, int, default))

    def number(self, name: str, default: float | None = None) -> float:
        return float(self._attribute(name, float, default))

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self._attribute(name, bool, default))

    def text(self, name: str, default: str) -> str:
        return self.attributes.get(name, default)

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        found: tuple[int, ...] = self._attribute(name, tuple[int, ...], default)
        return found

    def _attribute(self, name: str, kind: Any, default: Any) -> Any:
        """An attribute from its text; without a default it must be given."""
        if name in self.attributes:
            return parse_attribute(self.attributes[name], kind, f"{self.label}: attribute {name}")
        if default is None:
            raise GraphError(f"{self.label}: attribute {name} is missing; it is needed")
        return default


Converter = Callable[[Node], "Value | Mapping[int, Value]"]
"""Gives the value of the first output alone, of which the node may then have no other in use, or of each in use."""

_CONVERTERS: Converters[Converter] = Converters("MXNet", "mxnet")
converter = _CONVERTERS.register
"""Registers a function as the converter of MXNet operators."""
find_converter = _CONVERTERS.find


def covered_operators() -> frozenset[str]:
    """The MXNet operators that are read, by all their names."""
    return _CONVERTERS.operators


def is_float(value: Value) -> bool:
    return np.dtype(value.dtype).kind == "f"
