"""What each section of a report's page is given, beside the facts themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from mrt.report.facts import Accuracy, Function, Layer, Output, ProvenTensor, Report, Trial
from mrt.report.page.layers import Row
from mrt.report.page.memory import memory
from mrt.report.page.names import instruction
from mrt.report.page.numbers import duration, integer, number, percent, size
from mrt.report.page.words import CHANCE, layer_title, spelled, verdict

SHOWN, LISTED, MOST_ROWS = 16, 6, 400
"""Layers with a bar of their own before the rest is folded, lines of the lists of widths, and those of any list."""
MARKS = {"try": "Try", "done": "Done", "fine": "Fine", "warning": "Mind", "internal": "Inside"}
ORDER = tuple(MARKS)
"""The kinds of notes, in the order of a reader who wants to do something: what to mind comes first of all."""

View = dict[str, Any]


def head(report: Report) -> View:
    """The lines above the name, the verdict, the interval of the difference, and the outputs."""
    return {
        "over": _over(report),
        "verdict": verdict(report),
        "whisker": _whisker(report.accuracy),
        "outputs": _outputs(report.outputs or ()),
    }


def _over(report: Report) -> str:
    quantize = report.settings.get("quantize")
    sections = quantize if isinstance(quantize, Mapping) else report.settings
    bits = [(_bits(sections, key), f"{key}s") for key in ("activation", "weight")]
    shapes = [" × ".join(map(str, port.shape)) for port in report.model.inputs]
    inputs = f"input {shapes[0]}" if len(shapes) == 1 else spelled(len(shapes), "input")
    states = spelled(len(report.model.states), "state") if report.model.states else ""
    said = ", ".join(f"{count}-bit {what}" for count, what in bits if count is not None)
    return " · ".join(filter(None, (said, inputs, states, spelled(report.model.parameters, "parameter"))))


def _bits(sections: Mapping[str, Any], key: str) -> int | None:
    section = sections.get(key)
    bits = section.get("bits") if isinstance(section, Mapping) else None
    return bits if isinstance(bits, int) else None


def _whisker(accuracy: Accuracy | None) -> View | None:
    """The difference and its 95 % interval, in per cent of a line whose middle is no difference."""
    if accuracy is None or accuracy.difference is None or accuracy.standard_error is None:
        return None
    reach = CHANCE * accuracy.standard_error
    wide = max(1.2 * (abs(accuracy.difference) + reach), 1e-3)
    at = [50 + 50 * value / wide for value in (accuracy.difference - reach, accuracy.difference)]
    return {"left": round(at[0], 2), "width": round(2 * (at[1] - at[0]), 2), "dot": round(at[1], 2)}


@dataclass(frozen=True)
class OutputRow:
    """A line of the outputs. share: of the highest SQNR among them."""

    name: str
    title: str
    sqnr: float | None
    share: float
    is_part: bool


def _outputs(outputs: Sequence[Output]) -> list[OutputRow]:
    lines: list[tuple[str, str, float | None, bool]] = []
    for output in outputs:
        lines.append((output.name, "×".join(map(str, output.shape)), output.sqnr, False))
        for part in output.parts:
            place = f"{part.start} to {part.stop - 1} of axis {part.axis}, up to {number(part.reach)}"
            lines.append((part.name, place, part.sqnr, True))
    best = max((sqnr for _, _, sqnr, _ in lines if sqnr is not None), default=1.0)
    return [OutputRow(name, title, sqnr, _part(sqnr, best), is_part) for name, title, sqnr, is_part in lines]


def _part(value: float | None, most: float) -> float:
    return min(1.0, max(0.0, value / most)) if value is not None and most > 0 else 0.0


def where(report: Report, rows: Sequence[Row]) -> View:
    """The waterfall: how wide it is, what is folded, and what all layers rounded at once make."""
    groups = _groups(report, sum(row.share for row in rows))
    alone = sum(row.share for row in rows) + sum(group["share"] for group in groups)
    whole = [error for error in (report.error.whole if report.error else ()) if error]
    return {
        "ranked": rows[:MOST_ROWS],
        "others": max(0, len(rows) - SHOWN),
        "shown": SHOWN,
        "alone": alone,
        "extent": max(alone, 1.0),
        "rest": sum(row.share for row in rows[SHOWN:]),
        "whole": -10 * math.log10(sum(whole) / len(whole)) if whole else None,
        "has_sqnr": any(layer.sqnr is not None for layer in report.layers),
        "choices_said": _choices_said(report),
        "groups": groups,
        "details": spelled(report.detailed, "layer"),
    }


def _groups(report: Report, left: float) -> list[View]:
    """Layers that were not told apart, behind those that were. left: where the first bar begins."""
    found = []
    for group in report.error.groups if report.error else ():
        first, last = (report.layers[place].name for place in (group.layers[0], group.layers[-1]))
        title = f"{spelled(len(group.layers), 'layer')}, from {first} to {last}"
        found.append({"name": first, "title": title, "left": left, "share": group.share})
        left += group.share
    return found


def _choices_said(report: Report) -> str:
    """What the choices of layers rest on."""
    told = report.choices
    if told is None:
        return ""
    before = "" if told.sqnr is None else f" The outputs are at {number(told.sqnr)} dB as they are."
    return (
        f"Each choice alone, simulated on {spelled(told.samples, 'sample')} of {told.source}, all else as it is, bias "
        f"corrections too.{before} Tried for the {spelled(len(told.layers), 'layer')} with the largest shares. Cost: "
        "operations more, in per cent of the network's, the time that they would take, an estimate, and bytes more. "
        "mrt tune makes and judges whole networks, and changes for all layers together."
    )


def headroom(report: Report) -> View:
    """The layers whose sums leave the fewest bits, and whose products fill them most."""
    sums = [(each, each.headroom.sum) for each in report.layers if each.headroom.sum]
    products = [(each, each.headroom.product) for each in report.layers if each.headroom.product]
    widest = [tensor for _, tensor in (*sums, *products)]
    return {
        "sums": _fullest(sums),
        "products": _fullest(products),
        "has_seen": any(tensor.seen_bits is not None for tensor in widest),
        "reach": reach,
    }


def _fullest(pairs: Sequence[tuple[Layer, ProvenTensor]]) -> list[tuple[Layer, ProvenTensor]]:
    return sorted(pairs, key=lambda pair: -reach(pair[1]))[:LISTED]


def reach(tensor: ProvenTensor) -> int:
    """The largest size of a tensor's values; that of the most negative one is 1 less, as two's complement has it."""
    return max(tensor.hi, -tensor.lo - 1, 0)


@dataclass(frozen=True)
class Call:
    """A compiled function. width: of its bar; more: what hovering tells."""

    function: Function
    name: str
    title: str
    layer: int | None
    width: float
    instruction: str
    more: str


def time(report: Report) -> View:
    """Functions, slowest first or in the order of calls, the memory plan, and what the stages took."""
    functions = list(report.time.functions) if report.time else []
    known = [each.seconds for each in functions if each.seconds is not None]
    most = max(known, default=0.0) or 1.0
    functions.sort(key=lambda each: (each.seconds is None, -(each.seconds or 0.0), each.place))
    by_id = {layer.id: layer for layer in report.layers}
    return {
        "calls": [_call(each, by_id, most) for each in functions[:MOST_ROWS]],
        "timed": bool(known),
        **memory(report),
        "stages": _stages(report.seconds),
    }


def _call(function: Function, layers: Mapping[int, Layer], most: float) -> Call:
    layer = None if function.layer is None else layers.get(function.layer)
    first = function.outputs[0] if function.outputs else "?"
    name, title = (first, ", ".join(function.operators[:3])) if layer is None else (layer.name, layer_title(layer))
    lines = [", ".join(function.operators), function.kernel, *function.memory, function.ends, *function.without]
    place, width = layer.id if layer else None, (function.seconds or 0.0) / most
    more = "\n".join(filter(None, lines))
    return Call(function, name, title, place, width, instruction(function.instruction), more)


def _stages(seconds: Mapping[str, float]) -> View | None:
    total = sum(seconds.values())
    if not total:
        return None
    return {"total": total, "flex": {name: round(max(each, total / 11), 3) for name, each in seconds.items()}}


def search(report: Report) -> View:
    """The trials, best metric first, and their chart: by what was to be least, where that is known of two of them."""
    trials = report.trials.trials if report.trials else []
    ordered = sorted(trials, key=lambda each: (not each.is_best, -_known(each.metric)))
    points = [(_cost(each, report.trials.objective), each) for each in trials] if report.trials else []
    drawn = [(cost, each) for cost, each in points if cost is not None and each.metric is not None]
    if report.trials is None or len(drawn) < 2:
        return {"trials": ordered, "pareto": None}
    return {
        "trials": ordered,
        "pareto": {
            "points": [_point(cost, each) for cost, each in drawn],
            "line": None,
            "xLabel": _COST_LABELS.get(report.trials.objective, _COST_LABELS["latency"]),
            "yLabel": report.trials.metric,
        },
    }


_COST_LABELS = {"latency": "multiplications", "bytes": "KiB", "bits": "mean bits"}


def _cost(trial: Trial, objective: str) -> float | None:
    if objective == "bytes":
        return None if trial.bytes is None else trial.bytes / 1024
    if objective == "bits":
        return trial.bits
    return trial.cost


def _point(cost: float, trial: Trial) -> View:
    told = [
        f"trial {trial.name}",
        f"metric {number(trial.metric)}",
        duration(trial.seconds),
        size(trial.bytes),
        *trial.changes[:6],
    ]
    return {"x": cost, "y": trial.metric, "front": trial.is_best, "best": False, "text": "\n".join(told)}


def _known(value: float | None) -> float:
    return -math.inf if value is None else value


def notes(report: Report, verbose: bool) -> View:
    """The notes, those that warn and help first; internal ones when asked for."""
    order = {"warning": -1} | {kind: place for place, kind in enumerate(ORDER) if kind != "warning"}
    said = [note for note in report.notes if verbose or note.kind != "internal"]
    return {
        "notes": sorted(said, key=lambda note: order[note.kind]),
        "unsaid": len(report.notes) - len(said),
        "marks": MARKS,
        "layer_names": {layer.id: layer.name for layer in report.layers},
    }


@dataclass(frozen=True)
class Line:
    """A line of the table of all layers."""

    layer: Layer
    title: str
    shape: str
    cells: tuple[str, ...]


def table(report: Report, rows: Sequence[Row]) -> list[Line]:
    """All layers, or those with the largest shares where they are too many."""
    kept = {row.layer.id for row in rows[:MOST_ROWS]} or set(range(MOST_ROWS))
    found = []
    for layer in report.layers:
        if len(report.layers) > MOST_ROWS and layer.id not in kept:
            continue
        cells = tuple(_CELLS[key](value) for key, value in _sorted_by(layer).items() if key in _CELLS)
        found.append(Line(layer, layer_title(layer), "×".join(map(str, layer.shape)), cells))
    return found


_CELLS: Mapping[str, Any] = {
    "bits": integer,
    "share": lambda share: percent(share).removesuffix(" %"),
    "isolated": number,
    "cumulative": number,
    "weights": number,
    "clipped": lambda share: "0" if share == 0 else percent(share, 2).removesuffix(" %"),
    "room": number,
    "products": lambda count: number(count / 1e3) if count else "",
    "bytes": lambda count: number(count / 1024) if count else "",
    "seconds": lambda seconds: number(seconds and 1e6 * seconds),
}
"""How the numbers of the table are written."""


def columns(report: Report) -> dict[str, list[Any]]:
    """What the columns of the table sort by, by their keys."""
    lines = [_sorted_by(layer) for layer in report.layers]
    keys = lines[0] if lines else ()
    return {key: [_rounded(line[key]) for line in lines] for key in keys}


def _sorted_by(layer: Layer) -> View:
    activation = next((bits.chosen for bits in layer.bits if bits.what == "activation"), None)
    widest = layer.headroom.sum
    return {
        "id": layer.id,
        "kind": layer_title(layer),
        "shape": math.prod(layer.shape),
        "bits": activation,
        "share": layer.shares and layer.shares.alone,
        "isolated": layer.sqnr and layer.sqnr.isolated,
        "cumulative": layer.sqnr and layer.sqnr.cumulative,
        "weights": layer.weights and layer.weights.sqnr,
        "clipped": layer.values and layer.values.clipped,
        "room": None if widest is None else max(0.0, 32 - widest.bits),
        "products": layer.products,
        "bytes": layer.bytes,
        "seconds": layer.seconds,
    }


def _rounded(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def settings(report: Report) -> str:
    """The configuration as YAML."""
    return yaml.safe_dump(report.settings, sort_keys=False, allow_unicode=True) if report.settings else ""
