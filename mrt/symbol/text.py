"""The text form of a graph, for people and for golden tests."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from mrt.symbol.interval import Array
from mrt.symbol.symbol import Symbol

_PLAIN_NAME = re.compile(r"[\w./:$-]+")
MOST_LINES = 60
"""What `print` shows of a graph."""
_SHOWN_KINDS, _SHOWN_ENDS, _WIDEST = 8, 8, 118
"""Of a page: kinds of operators, inputs and outputs, characters of a line."""
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


def shortened(text: str) -> str:
    """The text form with its parameters counted and its middle left out, where it has more than MOST_LINES."""
    lines = text.splitlines()
    if len(lines) <= MOST_LINES:
        return text
    rest = [line for line in lines[1:] if not line.startswith("  @")]
    counted = [f"  … {len(lines) - 1 - len(rest)} parameters"] if len(rest) < len(lines) - 1 else []
    half = MOST_LINES // 2 - 1
    left_out = len(rest) - 2 * half
    middle = [f"  … {left_out} more; graph.text() is the whole"] if left_out > 0 else []
    shown = [*rest[:half], *middle, *rest[-half:]] if left_out > 0 else [*rest, "# graph.text() has the parameters"]
    return "\n".join([lines[0], *counted, *shown])


def graph_page(
    inputs: Sequence[Symbol], outputs: Sequence[Symbol], operators: Mapping[str, int], parameters: Mapping[str, Array]
) -> str:
    """What a graph is, in few lines: inputs, outputs, how often each operator occurs, bytes."""
    size = sum(array.nbytes for array in parameters.values())
    kinds = ", ".join(f"{name} ×{count}" for name, count in list(operators.items())[:_SHOWN_KINDS])
    more = f", {len(operators) - _SHOWN_KINDS} more kinds" if len(operators) > _SHOWN_KINDS else ""
    lines = [
        f"Graph: {sum(operators.values())} operators, {len(parameters)} parameters of {size / 1e6:.2f} MB",
        *(f"  {title} {line}" for title, found in (("input", inputs), ("output", outputs)) for line in _few(found)),
        f"  {kinds}{more}",
        "  print(graph) shows its operators, graph.text() all",
    ]
    return "\n".join(line if len(line) <= _WIDEST else f"{line[: _WIDEST - 1]}…" for line in lines)


def _few(symbols: Sequence[Symbol]) -> list[str]:
    shown = [f"{symbol.name} : {symbol.type}" for symbol in symbols[:_SHOWN_ENDS]]
    return [*shown, f"… {len(symbols) - _SHOWN_ENDS} more"] if len(symbols) > _SHOWN_ENDS else shown


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
