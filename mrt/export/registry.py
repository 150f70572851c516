"""The exporters of one format, found by the record of the operator that they write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from mrt.errors import UnsupportedOperatorError
from mrt.symbol import Graph, Operator, Symbol
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.registry import ByRecord

_Record = TypeVar("_Record", bound=Operator)
_Node = TypeVar("_Node")
_Value = TypeVar("_Value")

Exporter = Callable[[_Record, _Node], _Value]
"""Gives the value of one symbol, given its operator and its node in the format."""


class Exporters(Generic[_Node, _Value]):
    """One exporter for each operator that a format can express, its record's own or that of the nearest base."""

    def __init__(self, title: str, part: str | None = None) -> None:
        """`title`: what errors call the format's operators, such as "ONNX's integer operators". part: the part of
        `mrt.plugins` that adds exporters.
        """
        self._title = title
        self._exporters: ByRecord[Exporter[Any, _Node, _Value]] = ByRecord(f"exporter to {title}", part)

    def register(
        self, *records: type[_Record]
    ) -> Callable[[Exporter[_Record, _Node, _Value]], Exporter[_Record, _Node, _Value]]:
        """Makes a function the exporter of the operators of these records; GraphError where one of them has one."""

        def register(function: Exporter[_Record, _Node, _Value]) -> Exporter[_Record, _Node, _Value]:
            for record in records:
                self._exporters.add(record, function)
            return function

        return register

    def find(self, operator: Operator) -> Exporter[Any, _Node, _Value]:
        """The exporter of an operator; UnsupportedOperatorError where it has none: see `check_covered`."""
        found = self._exporters.find(type(operator))
        if found is None:
            raise UnsupportedOperatorError(f"{operator.op} has no form in {self._title}")
        return found

    def names(self, operator: Operator) -> bool:
        """Whether an exporter is registered for the very record, not only for one that it is derived from."""
        return type(operator) in tuple(self._exporters)

    def check_covered(self, graph: Graph) -> None:
        """UnsupportedOperatorError listing every operator without an exporter: see the function of the same name."""
        check_covered(graph, self._title, lambda symbol: type(symbol.operator) in self._exporters)


def check_covered(graph: Graph, title: str, has_form: Callable[[Symbol], bool]) -> None:
    """UnsupportedOperatorError listing every operator that `has_form` denies, and every tensor that is no integer.

    Each is listed with its count and its first symbols. title: what the error calls the operators of the format.
    """
    refused: dict[str, list[str]] = {}
    for symbol in dict.fromkeys((*graph.inputs, *graph.symbols)):
        if symbol.dtype not in DTYPE_RANGES:
            refused.setdefault(f"{symbol.op} of {symbol.dtype}", []).append(symbol.name)
        elif not symbol.is_variable and not has_form(symbol):
            refused.setdefault(symbol.op, []).append(symbol.name)
    if refused:
        found = "; ".join(f"{op} ({len(names)}: {_first(names)})" for op, names in refused.items())
        raise UnsupportedOperatorError(f"these operators have no form in {title}: {found}")


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
