"""What is known of a model's tensors, for people: a table of all, and where the bounds of one come from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from mrt.errors import MRTError
from mrt.evaluation import CENTRED
from mrt.model import QuantizedModel
from mrt.report.errors import ErrorFact, ErrorTable
from mrt.report.table import aligned, widths
from mrt.symbol import Array, Graph, Interval, Symbol
from mrt.symbol.bounds import analyse_bounds

UNKNOWN = "-"
COLUMNS = ("symbol", "operator", "shape", "dtype", "bits", "bounds", "scale", "zero point", "SQNR", "worst error")
NUMBERS = frozenset({"bits", "zero point", "SQNR", "worst error"})
"""The columns whose cells stand at the right."""
GAP = 3
"""Blanks between the columns of a terminal's table."""
PAIRS: Sequence[tuple[int, ...]] = ((0, 1), (2, 3), (5, 4), (6, 7), (8, 9))
"""The columns that share a cell on a narrow terminal."""


@dataclass(frozen=True, eq=False)
class Row:
    """One symbol of the integer graph.

    operator: its name, or what kind of variable it is. scale, zero_point: None where the tensor stands for no real
    values. error: None where it was not compared with float.
    """

    name: str
    operator: str
    shape: tuple[int, ...]
    dtype: str
    bits: int
    lo: int
    hi: int
    scale: Array | None
    zero_point: Array | None
    error: ErrorFact | None

    @property
    def cells(self) -> tuple[str, ...]:
        """The texts of the columns."""
        error = self.error
        return (
            shown(self.name),
            self.operator,
            _shape(self.shape),
            self.dtype,
            str(self.bits),
            f"[{self.lo}, {self.hi}]",
            UNKNOWN if self.scale is None else _scale(self.scale),
            UNKNOWN if self.zero_point is None else _zero_point(self.zero_point),
            UNKNOWN if error is None or error.sqnr_db is None else f"{error.sqnr_db:.1f} dB",
            UNKNOWN if error is None else _steps(error),
        )


def inspect_rows(model: QuantizedModel, errors: ErrorTable | None = None) -> list[Row]:
    """Every symbol of the integer graph, each after its inputs."""
    return [_row(symbol, model, errors) for symbol in model.graph.symbols]


def _row(symbol: Symbol, model: QuantizedModel, errors: ErrorTable | None) -> Row:
    fact = model.certificate.tensors[symbol.name]
    scale = model.scales.get(symbol.name)
    return Row(
        symbol.name,
        kind_of(symbol, model.graph),
        symbol.shape,
        symbol.dtype,
        fact.bits,
        fact.lo,
        fact.hi,
        scale,
        None if scale is None else model.zero_points.get(symbol.name, CENTRED),
        None if errors is None else errors.tensors.get(symbol.name),
    )


def plain_table(rows: Iterable[Row]) -> str:
    """The rows as text in aligned columns, however wide."""
    return aligned([COLUMNS, *(row.cells for row in rows)], NUMBERS)


def rich_table(rows: Sequence[Row], width: int) -> Table:
    """The rows for a terminal of this many characters, two columns to a cell where the lines would not fit.

    What is too wide even then is folded; nothing is cut.
    """
    fits = sum(widths([COLUMNS, *(row.cells for row in rows)])) + GAP * len(COLUMNS) <= width
    groups: Sequence[tuple[int, ...]] = [(k,) for k in range(len(COLUMNS))] if fits else PAIRS
    table = Table(box=box.SIMPLE_HEAD, padding=(0, GAP - 1, 0, 0), show_edge=False)
    for group in groups:
        at_right = fits and COLUMNS[group[0]] in NUMBERS
        header = "\n".join(COLUMNS[k] for k in group)
        table.add_column(header, overflow="fold", justify="right" if at_right else "left")
    for row in rows:
        table.add_row(*(Text("\n".join(row.cells[k] for k in group)) for group in groups))
    return table


def overview(model: QuantizedModel, errors: ErrorTable | None = None) -> str:
    """What holds of the whole model, one fact a line: counts, how errors were measured, what was given up."""
    proof = model.certificate
    lines = [
        f"{len(model.graph.operators)} operators, {len(proof.tensors)} tensors, at most {proof.max_bits} bits",
        "errors against float: not measured; stage evaluate of a run does"
        if errors is None
        else f"errors against float: over {errors.samples} samples",
    ]
    return "\n".join([*lines, *(f"note: {note}" for note in model.notes)])


def explain(model: QuantizedModel, name: str, errors: ErrorTable | None = None) -> str:
    """Where the bounds of a tensor come from, its inputs, its range, its error.

    name: an integer symbol, or a prepared float symbol: then every integer symbol that was made from it is told of.
    Raises MRTError with the nearest names if there is neither.
    """
    chosen = [symbol for symbol in model.graph.symbols if name in (symbol.name, symbol.origin)]
    if not chosen and name in model.ranges:
        lines = [f"{shown(name)}: needs no integer symbol of its own; one made for its inputs holds its values"]
        return "\n".join([*lines, _fact_line("range", _range(model, name))])
    if not chosen:
        raise MRTError(_unknown(model, name))
    bounds = analyse_bounds(model.graph, model.intervals)
    return "\n\n".join("\n".join(_explained(symbol, model, bounds, errors)) for symbol in chosen)


def kind_of(symbol: Symbol, graph: Graph) -> str:
    """The operator's name; input or parameter for a variable."""
    if not symbol.is_variable:
        return symbol.op
    return "input" if graph.value(symbol) is None else "parameter"


def shown(name: str) -> str:
    """A name on one line, in quotes where it holds characters that do not print."""
    return name if name.isprintable() else json.dumps(name)


def _explained(
    symbol: Symbol, model: QuantizedModel, bounds: dict[str, Interval], errors: ErrorTable | None
) -> list[str]:
    origin = "" if symbol.origin == symbol.name else f", made from {shown(symbol.origin)}"
    lines = [f"{shown(symbol.name)}: {kind_of(symbol, model.graph)}, {symbol.type}{origin}"]
    facts = [
        ("attributes", _attributes(symbol)),
        ("bounds", f"{_bounds(bounds[symbol.name])}, by {model.certificate.tensors[symbol.name].rule}"),
        *(("on the way", _bounds(interval)) for interval in _intermediates(symbol, bounds)),
        *(
            ("input", f"{shown(s.name)}: {kind_of(s, model.graph)}, {s.type}, {_bounds(bounds[s.name])}")
            for s in symbol.inputs
        ),
        ("read by", _readers(symbol, model.graph)),
        ("real value", _real(symbol, model)),
        ("correction", _correction(symbol, model)),
        ("range", _calibrated(symbol, model)),
        ("error", _error(symbol, model.graph, errors)),
    ]
    return lines + [_fact_line(label, text) for label, text in facts if text]


def _fact_line(label: str, text: str) -> str:
    return f"  {label:<12}{text}"


def _attributes(symbol: Symbol) -> str:
    if symbol.is_variable:
        return ""
    return ", ".join(f"{name} = {value!r}" for name, value in symbol.operator.attributes().items())


def _intermediates(symbol: Symbol, bounds: dict[str, Interval]) -> tuple[Interval, ...]:
    """What the operator holds before its result."""
    if symbol.is_variable:
        return ()
    return symbol.operator.intermediates(*(bounds[source.name] for source in symbol.inputs))


def _readers(symbol: Symbol, graph: Graph) -> str:
    readers = [shown(reader.name) for reader in dict.fromkeys(graph.consumers[symbol])]
    return ", ".join([*readers, *(["an output of the model"] if symbol in graph.outputs else [])])


def _real(symbol: Symbol, model: QuantizedModel) -> str:
    if symbol.name not in model.scales:
        return ""
    scale, zero_points = model.scales[symbol.name], model.zero_points.get(symbol.name, CENTRED)
    fact = model.certificate.tensors[symbol.name]
    if zero_points.size > 1:
        return f"{_scale(scale)} * (q - zero point), both for each of {zero_points.size} channels"
    zero_point = int(zero_points.reshape(-1)[0])
    centred = "q" if zero_point == 0 else f"(q - {zero_point})" if zero_point > 0 else f"(q + {-zero_point})"
    text = f"{_scale(scale)} * {centred}"
    if scale.size > 1:
        return f"{text}, a scale for each of {scale.size} channels"
    step = float(scale.reshape(-1)[0])
    return f"{text}, in [{step * (fact.lo - zero_point):.6g}, {step * (fact.hi - zero_point):.6g}]"


def _correction(symbol: Symbol, model: QuantizedModel) -> str:
    values = model.corrections.get(symbol.origin)
    if values is None or symbol.channel_axis is None:
        return ""
    return f"{values.min():.6g} to {values.max():.6g} is added, a value for each of {values.size} output channels"


def _calibrated(symbol: Symbol, model: QuantizedModel) -> str:
    if symbol.origin not in model.ranges or model.graph.value(symbol) is not None:
        return ""
    return _range(model, symbol.origin)


def _range(model: QuantizedModel, origin: str) -> str:
    calibrated = model.ranges[origin]
    return f"[{calibrated.lo:.6g}, {calibrated.hi:.6g}], calibrated for {shown(origin)}"


def _error(symbol: Symbol, graph: Graph, errors: ErrorTable | None) -> str:
    found = None if errors is None or graph.value(symbol) is not None else errors.of_origin(symbol.origin)
    if errors is None or found is None:
        return ""
    name, fact = found
    ratio = "no error" if not fact.worst_steps else "no signal"
    text = f"{ratio if fact.sqnr_db is None else f'SQNR {fact.sqnr_db:.2f} dB'}, at most {_steps(fact)}"
    where = "" if name == symbol.name else f", measured at {shown(name)}"
    return f"{text}, over {errors.samples} samples against float {shown(fact.origin)}{where}"


def _bounds(interval: Interval) -> str:
    """The interval, its width, and how the bounds vary where they do."""
    text = f"{interval}, {interval.bits} bits"
    if (interval.lo.size == 1 and interval.hi.size == 1) or interval.is_constant:
        return text
    return (
        f"{text} (lowest {interval.lo.min()} to {interval.lo.max()}, "
        f"highest {interval.hi.min()} to {interval.hi.max()} by element)"
    )


def _unknown(model: QuantizedModel, name: str) -> str:
    known = [n for symbol in model.graph.symbols for n in (symbol.name, symbol.origin)]
    names = list(dict.fromkeys([*known, *model.ranges]))
    near = get_close_matches(name, names, 5, 0.5) or [n for n in names if name.lower() in n.lower()][:5]
    hint = f"the nearest are {', '.join(map(shown, near))}" if near else "without --symbol all are listed"
    return f"no symbol of the model is called {shown(name)}, nor was any made from one of that name; {hint}"


def _shape(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _scale(scale: Array) -> str:
    least, greatest = float(np.min(scale)), float(np.max(scale))
    return f"{least:.6g}" if least == greatest else f"{least:.4g} to {greatest:.4g}"


def _zero_point(zero_points: Array) -> str:
    least, greatest = int(np.min(zero_points)), int(np.max(zero_points))
    return str(least) if least == greatest else f"{least} to {greatest}"


def _steps(fact: ErrorFact) -> str:
    return UNKNOWN if fact.worst_steps is None else f"{fact.worst_steps:.4g} steps"
