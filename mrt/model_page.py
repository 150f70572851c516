"""A quantized model on one page, as `print` shows it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mrt.certificate import TensorFact
from mrt.messages import counted
from mrt.symbol import Graph, Symbol
from mrt.symbol.quantized_tensor import TensorQuantization

MOST_BITS = 32
"""Of any tensor."""
MOST_ENTRIES, MOST_LAYERS, MOST_NOTES, WIDEST = 5, 14, 3, 118
"""Of inputs and outputs, layers, notes, and characters of a line."""
INTERNAL = ("not simplified", "simplified by")
"""How notes begin that tell of the making only."""
OF_ONE_TENSOR = re.compile(r".+ \(\w+\): \d+ bits; .+")
"""A note of the bits of one tensor, which a report tells with its layer."""


def model_page(
    graph: Graph,
    inputs: Sequence[TensorQuantization],
    outputs: Sequence[TensorQuantization],
    postprocess: Graph | None,
    facts: Mapping[str, TensorFact],
    notes: Sequence[str],
    titles: Sequence[str],
) -> str:
    """At most 40 lines: inputs and outputs with their scales, layers with their bits, bytes, the proof, what is next.

    titles: what the network calls its outputs, behind the tail.
    """
    widest = max((fact.bits for fact in facts.values()), default=0)
    size = sum(array.nbytes for array in graph.parameters.values())
    layers = [symbol for symbol in graph.operators if _weight(graph, symbol) is not None]
    operators = counted(len(graph.operators), "integer operator")
    proven = f"every tensor fits {widest} bits ({MOST_BITS} are allowed), {counted(len(facts), 'tensor')}"
    lines = [
        f"QuantizedModel: {counted(len(layers), 'layer')}, {operators}, {_bytes(size)} of parameters",
        f"proven: {proven}",
        *_entries("inputs", inputs),
        *_entries("outputs, integers", outputs),
    ]
    if postprocess is not None:
        tail = ", ".join(postprocess.count_operators())
        lines.append(f"float tail: {tail} → {', '.join(titles)}")
    lines += _layers(graph, layers, facts)
    lines += _notes(notes)
    lines.append("next: module = model.compile(); module(x)   model.evaluate(loader)   model.save(folder)")
    lines.append("      model.to_onnx(path)   model.to_c(folder)   print(model.graph)")
    return "\n".join(line if len(line) <= WIDEST else f"{line[: WIDEST - 1]}…" for line in lines)


def is_internal(note: str) -> bool:
    """Whether a note is of use to developers only."""
    return note.startswith(INTERNAL) or OF_ONE_TENSOR.fullmatch(note) is not None


def _notes(notes: Sequence[str]) -> list[str]:
    """The first of those that are for users, and how many more there are."""
    told = [f"note: {note}" for note in notes if not is_internal(note)][:MOST_NOTES]
    rest = len(notes) - len(told)
    return [*told, f"  … {rest} more in .notes" if told else f"{counted(rest, 'note')} in .notes"] if rest else told


def _entries(title: str, entries: Sequence[TensorQuantization]) -> list[str]:
    shown = [f"  {entry.name}: {entry.dtype}[{', '.join(map(str, entry.shape))}], {_real(entry)}" for entry in entries]
    more = [f"  … {len(shown) - MOST_ENTRIES} more"] if len(shown) > MOST_ENTRIES else []
    return [f"{title}:", *shown[:MOST_ENTRIES], *more]


def _real(entry: TensorQuantization) -> str:
    least, greatest = (f"{end:.6g}" for end in (entry.scale.min(), entry.scale.max()))
    steps = least if least == greatest else f"{least} to {greatest}"
    zero = f"(q {'-' if entry.zero_point > 0 else '+'} {abs(entry.zero_point)})" if entry.zero_point else "q"
    return f"real = {steps} · {zero}, {entry.lo} ≤ q ≤ {entry.hi}"


def _weight(graph: Graph, symbol: Symbol) -> Any:
    """The weight of a layer; None for any other operator."""
    if symbol.channel_axis is None:
        return None
    values = (graph.value(source) for source in symbol.inputs[1:])
    return next((value for value in values if value is not None and value.ndim > 1), None)


def _layers(graph: Graph, layers: Sequence[Symbol], facts: Mapping[str, TensorFact]) -> list[str]:
    rows: list[tuple[str, ...]] = [("layer", "operator", "weight", "bits", "input", "sum bits")]
    rows += [_row(graph, symbol, facts) for symbol in layers[:MOST_LAYERS]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if len(layers) > MOST_LAYERS:
        kinds = Counter(symbol.op for symbol in layers[MOST_LAYERS:]).most_common()
        lines.append(f"… {', '.join(f'{count} more {kind}' for kind, count in kinds)}")
    return lines if layers else []


def _row(graph: Graph, symbol: Symbol, facts: Mapping[str, TensorFact]) -> tuple[str, ...]:
    weight = _weight(graph, symbol)
    shape = "×".join(map(str, weight.shape))
    name = symbol.origin if len(symbol.origin) <= 40 else f"…{symbol.origin[-39:]}"
    return name, symbol.op, shape, str(_bits(weight)), symbol.inputs[0].dtype, str(facts[symbol.name].bits)


def _bits(weight: Any) -> int:
    """The two's-complement width of the values."""
    return max(int(max(-int(weight.min()) - 1, int(weight.max()))).bit_length() + 1, 1) if weight.size else 1


def _bytes(size: int) -> str:
    return f"{size / 1e6:.2f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"
