"""Two runs side by side: as a page, as text for a pull request, and as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mrt.report.page import names, sections
from mrt.report.page.comparison import Comparison, Pair, changed, compared, labels, largest
from mrt.report.page.files import saved_report
from mrt.report.page.markdown import code, table, text
from mrt.report.page.numbers import UNKNOWN, decibels, duration, percent, signed
from mrt.report.page.packing import as_script, short
from mrt.report.page.render import DATA, html
from mrt.report.page.words import spelled
from mrt.report.table import aligned

SCRIPTS = ("charts.js", "common.js", "compare.js")
COMPARE_HTML, COMPARE_MARKDOWN = "compare.html", "compare.md"
MOST = 10
LAYER_COLUMNS = ("layer", "kind", "bits", "error", "then", "change", "isolated", "cumulative", "time")


def compare_folders(first: Path, second: Path) -> Comparison:
    """The comparison of what two runs left in their folders; MRTError where one has no report."""
    return compared(saved_report(first), saved_report(second), labels(first, second))


def compare_files(comparison: Comparison) -> dict[str, bytes]:
    """The contents of compare.html and compare.md, by their names."""
    pages = {COMPARE_HTML: compare_html(comparison), COMPARE_MARKDOWN: compare_markdown(comparison)}
    return {name: page.encode("utf-8", "replace") for name, page in pages.items()}


def compare_html(comparison: Comparison) -> str:
    ordered = sorted(comparison.pairs, key=lambda pair: pair.second.id)
    short = names.plain(pair.second.name for pair in ordered)
    lines = [_cumulative(ordered, 0), _cumulative(ordered, 1)]
    data = {
        "labels": [names.label(short[pair.second.name]) for pair in ordered],
        "tell": [_told(pair, comparison) for pair in ordered],
        "lines": [
            {"label": names.label(comparison.first), "color": "line", "values": lines[0]},
            {"label": names.label(comparison.second), "color": "act", "values": lines[1]},
        ],
        "columns": _columns(comparison.pairs),
    }
    shown = comparison.pairs[: sections.MOST_ROWS]
    view = {
        "comparison": comparison,
        "short": short,
        "shown": sections.SHOWN,
        "most": largest(comparison),
        "rows": [(pair, _cells(pair)) for pair in shown],
        "has_errors": any(pair.errors != (None, None) for pair in comparison.pairs),
        "has_sqnr": any(value is not None for line in lines for value in line),
        "alone": [(name, group) for name, group in zip(_both(comparison), comparison.alone, strict=True) if group],
        "changed": changed,
    }
    return html("compare.html.j2", SCRIPTS, view).replace(DATA, as_script(data))


def compare_markdown(comparison: Comparison) -> str:
    first, second = map(code, _both(comparison))
    facts = [(text(f.name), text(f.first), text(f.second), text(f.change)) for f in comparison.facts]
    parts = [f"# {first} and {second}", text(comparison.verdict), table(("", first, second, "change"), facts)]
    layers = [(code(pair.second.name), *map(text, _cells(pair))) for pair in comparison.pairs[:MOST]]
    if layers:
        parts += ["## Layers", table(LAYER_COLUMNS, layers, 2), text(_unit(comparison))]
    for name, group in zip((first, second), comparison.alone, strict=True):
        if group:
            parts.append(f"Only in {name}: {', '.join(map(code, group[:MOST]))}{_more(group)}.")
    if comparison.settings:
        settings = [(code(key), code(before), code(after)) for key, before, after in comparison.settings]
        parts += ["## Configuration", table(("key", first, second), settings, 3)]
    return "\n\n".join(parts) + "\n"


def compare_text(comparison: Comparison) -> str:
    """For a terminal: the head, the layers whose error changed most, and what the configurations differ in."""
    first, second = (names.row(name) for name in _both(comparison))
    head = [("", first, second, "change"), *((f.name, f.first, f.second, f.change) for f in comparison.facts)]
    parts = [_plain(head, 1), comparison.verdict]
    layers = [(names.row(pair.second.name), *_cells(pair)) for pair in comparison.pairs[:MOST]]
    if layers:
        rest = len(comparison.pairs) - len(layers)
        others = f" {spelled(rest, 'more layer')}." if rest else ""
        parts += [_plain([LAYER_COLUMNS, *layers], 3), _unit(comparison) + others]
    for name, group in zip((first, second), comparison.alone, strict=True):
        if group:
            parts.append(f"only in {name}: {', '.join(map(names.row, group[:MOST]))}{_more(group)}")
    if comparison.settings:
        parts.append(_plain([("key", first, second), *comparison.settings], 3))
    return "\n\n".join(parts)


def _both(comparison: Comparison) -> tuple[str, str]:
    return comparison.first, comparison.second


def _plain(lines: Sequence[Sequence[str]], left: int) -> str:
    """Aligned columns, the first `left` of them at the left."""
    return aligned(lines, lines[0][left:])


def _unit(comparison: Comparison) -> str:
    unit = f"in % of that of {comparison.first} with all rounded"
    return f"Errors are those that a layer makes at the outputs alone, {unit}."


def _more(group: Sequence[str]) -> str:
    return f" and {len(group) - MOST} more" if len(group) > MOST else ""


def _cells(pair: Pair) -> tuple[str, ...]:
    """What a table says of a layer, behind its name."""
    errors = pair.errors
    change = f"{signed(100 * pair.change)} %" if None not in errors else ""
    sqnr = [layer.sqnr for layer in (pair.first, pair.second)]
    isolated = [decibels(each.isolated if each else None) for each in sqnr]
    cumulative = [decibels(each.cumulative if each else None) for each in sqnr]
    seconds = [duration(layer.seconds) for layer in (pair.first, pair.second)]
    spans = (changed(*each) if each != [UNKNOWN, UNKNOWN] else UNKNOWN for each in (isolated, cumulative, seconds))
    return pair.title, pair.bits, percent(errors[0]), percent(errors[1]), change, *spans


def _told(pair: Pair, comparison: Comparison) -> str:
    sqnr = [each.sqnr.cumulative if each.sqnr else None for each in (pair.first, pair.second)]
    lines = [f"{names.row(pair.second.name)} · {pair.title}"]
    lines += [f"{names.row(name)}: {decibels(value)}" for name, value in zip(_both(comparison), sqnr, strict=True)]
    return "\n".join(lines)


def _cumulative(pairs: Sequence[Pair], which: int) -> list[float | None]:
    sqnr = [(pair.first, pair.second)[which].sqnr for pair in pairs]
    return [None if each is None or each.cumulative is None else short(each.cumulative) for each in sqnr]


def _columns(pairs: Sequence[Pair]) -> dict[str, list[Any]]:
    """What the columns of the table sort by; a row's place is its place by change."""

    def sqnr(pair: Pair, name: str) -> float | None:
        return getattr(pair.second.sqnr, name) if pair.second.sqnr else None

    return {
        "layer": [pair.second.id for pair in pairs],
        "kind": [pair.title for pair in pairs],
        "bits": [pair.bits for pair in pairs],
        "error": [pair.errors[0] for pair in pairs],
        "then": [pair.errors[1] for pair in pairs],
        "change": [pair.change for pair in pairs],
        "isolated": [sqnr(pair, "isolated") for pair in pairs],
        "cumulative": [sqnr(pair, "cumulative") for pair in pairs],
        "time": [pair.second.seconds for pair in pairs],
    }
