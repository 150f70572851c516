"""The text form of a graph, for people and for golden tests."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from mrt.symbol.interval import Array
from mrt.symbol.symbol import Symbol

_PLAIN_NAME = re.compile(r"[\w./:$-]+")
_SHOWN_ELEMENTS = 4
"""Parameters of at most so many elements are shown with their value."""


def format_graph(
    inputs: Sequence[Symbol], symbols: Sequence[Symbol], outputs: Sequence[Symbol], parameters: Mapping[str, Array]
) -> str:
    """A graph as text, one of its `symbols` per line, each after its inputs:

        graph(%data : float32[1, 3, 8, 8]) {
          @conv_weight : float32[4, 3, 3, 3]
          @slope : float32[1] = [0.5]
          %conv : float32[1, 4, 6, 6] = Convolution(%data, @conv_weight) {kernel = (3, 3), num_filter = 4}
          %out : float32[1, 4, 6, 6] = broadcast_mul(%conv, @slope) from conv
          return %out
        }

    @ marks parameters, % everything else. Attributes that have their default are left out; `from` names the origin
    where it is another name. Names with other characters than letters, digits and _ . / : $ - stand in quotes.
    """
    fed = set(inputs)
    marks = {symbol: "@" if symbol.is_variable and symbol not in fed else "%" for symbol in symbols}
    marks |= dict.fromkeys(fed, "%")
    lines = [f"graph({', '.join(_declared(symbol, '%') for symbol in inputs)}) {{"]
    for symbol in symbols:
        if marks[symbol] == "@":
            lines.append(f"  {_declared(symbol, '@')}{_value(parameters[symbol.name])}{_origin(symbol)}")
    for symbol in symbols:
        if not symbol.is_variable:
            lines.append(f"  {_declared(symbol, '%')} = {_applied(symbol, marks)}{_origin(symbol)}")
    results = ", ".join(_named(symbol, marks[symbol]) for symbol in outputs)
    return "\n".join([*lines, f"  return {results}", "}"])


def _declared(symbol: Symbol, mark: str) -> str:
    return f"{_named(symbol, mark)} : {symbol.type}"


def _named(symbol: Symbol, mark: str) -> str:
    return mark + _quoted(symbol.name)


def _quoted(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return name
    return json.dumps(name, ensure_ascii=not name.isprintable())


def _applied(symbol: Symbol, marks: dict[Symbol, str]) -> str:
    inputs = ", ".join(_named(source, marks[source]) for source in symbol.inputs)
    attributes = ", ".join(f"{name} = {value!r}" for name, value in symbol.operator.attributes().items())
    return f"{symbol.op}({inputs})" + (f" {{{attributes}}}" if attributes else "")


def _origin(symbol: Symbol) -> str:
    return "" if symbol.origin == symbol.name else f" from {_quoted(symbol.origin)}"


def _value(value: Array) -> str:
    return f" = {_listed(value)}" if 0 < value.size <= _SHOWN_ELEMENTS else ""


def _listed(value: Array) -> str:
    if not value.ndim:
        return str(value[()])
    return f"[{', '.join(_listed(item) for item in value)}]"
