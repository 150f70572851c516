"""What a Relay converter sees: one call with its attributes completed by their defaults, and means to make symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from mrt.errors import GraphError
from mrt.frontend.relay.declarations import DECLARATIONS, REQUIRED
from mrt.frontend.relay.syntax import AttributeValue
from mrt.frontend.shared.node import Value
from mrt.frontend.shared.registry import Converters
from mrt.frontend.tvm.node import TVMNode, graph_dtype
from mrt.symbol import Symbol
from mrt.symbol.operators.integer import Cast
from mrt.symbol.types import INTEGER_DTYPES

_COMPARISONS = frozenset({"equal", "not_equal", "greater", "greater_equal", "less", "less_equal"})
_LOGIC = frozenset({"logical_and", "logical_or", "logical_xor", "logical_not"})


@dataclass(frozen=True)
class Node(TVMNode):
    """One Relay call. Converters read it and make symbols through it; they see nothing else of the text."""

    kind_name: str
    line: int
    attributes: Mapping[str, AttributeValue]

    @property
    def operator(self) -> str:
        return self.kind_name

    @property
    def kind(self) -> str:
        return self.kind_name

    @property
    def label(self) -> str:
        return f"line {self.line}, {self.operator}"

    # Attributes

    def attribute(self, name: str) -> AttributeValue:
        """An attribute as the text has it, else its default; GraphError where it has none."""
        value = self.attributes[name]
        if value == REQUIRED:
            raise GraphError(f"{self.label}: attribute {name} is missing; it has no default")
        return value

    def integer(self, name: str) -> int:
        return self._whole(name, self.attribute(name))

    def integers(self, name: str) -> tuple[int, ...] | None:
        """A list of integers; the padding of windows completed to the begins and then the ends of all axes."""
        values = self.attribute(name)
        if values is None:
            return None
        if not isinstance(values, list):
            values = [values]
        numbers = tuple(self._whole(name, value) for value in values)
        return self._padding(numbers) if name == "padding" else self._spatial(name, numbers)

    def number(self, name: str) -> float:
        value = self.attribute(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong(name, value, "a number")
        return float(value)

    def flag(self, name: str) -> bool:
        value = self.attribute(name)
        if not isinstance(value, int) or value not in (0, 1):
            raise self._wrong(name, value, "True or False")
        return bool(value)

    def text(self, name: str) -> str:
        """A word; the layout of the output is that of the data where it is not said."""
        value = self.attribute(name)
        if name == "out_layout" and value == "":
            value = self.attribute("data_layout" if "data_layout" in self.attributes else "layout")
        if not isinstance(value, str):
            raise self._wrong(name, value, "a text in quotes")
        return value

    def is_none(self, name: str) -> bool:
        return self.attribute(name) is None

    def _whole(self, name: str, value: AttributeValue) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, value, "integers")
        return value

    def _wrong(self, name: str, value: AttributeValue, needed: str) -> GraphError:
        found = value if isinstance(value, (bool, int, float, str)) else type(value).__name__
        return GraphError(f"{self.label}: attribute {name} is {str(found)[:40]!r}; {needed} is needed")

    def _padding(self, given: tuple[int, ...]) -> tuple[int, ...]:
        spatial = self._rank()
        if len(given) == 1:
            given *= spatial
        if len(given) == spatial:
            given *= 2
        if len(given) != 2 * spatial or min(given) < 0:
            raise GraphError(
                f"{self.label}: attribute padding is {given}; 1, {spatial} or {2 * spatial} numbers from 0 are needed"
            )
        return given

    def _spatial(self, name: str, given: tuple[int, ...]) -> tuple[int, ...]:
        """Strides and their like have an entry for each axis that a window slides along."""
        lowest = {"strides": 1, "dilation": 1, "pool_size": 1, "output_padding": 0}.get(name)
        if lowest is None or "padding" not in self.attributes:
            return given
        if len(given) == 1:
            given *= self._rank()
        if len(given) != self._rank() or min(given) < lowest:
            raise GraphError(
                f"{self.label}: attribute {name} is {given}; {self._rank()} numbers from {lowest} are needed"
            )
        return given

    def _rank(self) -> int:
        """How many axes the operator's windows slide along."""
        strides = DECLARATIONS[self.kind].attributes["strides"]
        return len(strides) if isinstance(strides, list) else 1

    # The result

    @property
    def result_dtype(self) -> str:
        """The dtype that Relay infers for an elementwise operator: that of the values, bool for comparisons."""
        if self.kind in _COMPARISONS | _LOGIC:
            return "bool"
        index = 1 if self.kind == "where" else 0
        value = self.input(index)
        if isinstance(value, tuple):
            raise GraphError(f"{self.label}: input {index} is a tuple; a tensor is needed")
        return graph_dtype(value.dtype.name if isinstance(value, np.ndarray) else value.dtype)

    def out_dtype(self, name: str, default: str) -> str:
        """An attribute that is a dtype, `default` where it says none."""
        text = self.text(name)
        return graph_dtype(default if text in ("", "void") else text)

    def cast(self, data: Symbol, dtype: str) -> Symbol:
        """`data` in a dtype of the graph, as it is where it has that."""
        if data.dtype == dtype:
            return data
        if dtype != "float32" and dtype not in INTEGER_DTYPES:
            raise self.unsupported("the dtype of the output", dtype, "a float, signed integer, uint8 or bool")
        return self.apply(Cast(dtype=dtype), [data])


Converter = Callable[[Node], Value]
"""Gives the value of a call: a tuple where the call gives one."""

_CONVERTERS: Converters[Converter] = Converters("Relay", "relay")
converter = _CONVERTERS.register
"""Registers a function as the converter of Relay operators."""
find_converter = _CONVERTERS.find
"""The converter of an operator such as "nn.relu", None if it is not covered."""


def complete(operator: str, given: Mapping[str, AttributeValue], inputs: int, label: str) -> dict[str, AttributeValue]:
    """The attributes of a call with defaults; GraphError where one is not known, or the number of inputs is wrong."""
    declaration = DECLARATIONS.get(operator)
    if declaration is None:
        raise GraphError(f"{label}: nothing is declared of {operator}")
    unknown = sorted(set(given) - set(declaration.attributes))
    if unknown:
        known = ", ".join(declaration.attributes) or "none"
        raise GraphError(f"{label}: attribute {unknown[0]} is not known; these are: {known}")
    if inputs != declaration.inputs:
        raise GraphError(f"{label}: {inputs} inputs are given; {declaration.inputs} are needed")
    return {**declaration.attributes, **given}


def covered_operators() -> frozenset[str]:
    """The Relay operators that are read."""
    return _CONVERTERS.operators
