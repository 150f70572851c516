"""The exporters of one format, found by the record of the operator that they write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from mrt.errors import GraphError, UnsupportedOperatorError
from mrt.plugins import load_plugins
from mrt.symbol import Graph, Operator, Symbol
from mrt.symbol.bounds import DTYPE_RANGES

_Exporter = TypeVar("_Exporter", bound=Callable[..., Any])


class Exporters(Generic[_Exporter]):
    """One exporter for each operator that a format can express."""

    def __init__(self, title: str, part: str | None = None) -> None:
        """`title`: what errors call the format's operators, such as "ONNX's integer operators". part: the part of
        `mrt.plugins` that adds exporters.
        """
        self._title, self._part = title, part
        self._exporters: dict[type[Operator], _Exporter] = {}

    def register(self, *records: type[Operator]) -> Callable[[_Exporter], _Exporter]:
        """Makes a function the exporter of the operators of these records; GraphError where one of them has one."""

        def register(function: _Exporter) -> _Exporter:
            for record in records:
                if record in self._exporters:
                    raise GraphError(f"two exporters to {self._title} for the operator {record.op}")
                self._exporters[record] = function
            return function

        return register

    def find(self, operator: Operator) -> _Exporter:
        """The exporter of an operator, which must have one: see `check_covered`."""
        return self._exporters[type(operator)]

    def check_covered(self, graph: Graph) -> None:
        """UnsupportedOperatorError listing every operator without an exporter: see the function of the same name."""
        if self._part is not None:
            load_plugins(self._part)
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
