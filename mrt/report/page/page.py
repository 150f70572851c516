"""report.html of one run: one file without any request, at most a megabyte."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from mrt.report.facts import ProvenTensor, Report
from mrt.report.page import names, sections
from mrt.report.page.charts import NO_CHARTS, layer_charts
from mrt.report.page.layers import Row, layer_texts, ranked
from mrt.report.page.numbers import integer, number
from mrt.report.page.packing import as_script, short
from mrt.report.page.render import DATA, html
from mrt.report.page.words import reason

HTML_FILE = "report.html"
MAX_BYTES = 1_000_000
SCRIPTS = ("charts.js", "common.js", "report.js")
DETAILS = (
    (96, 40, 1000),
    (64, 40, 1000),
    (48, 20, 1000),
    (32, 12, 1000),
    (32, 8, 300),
    (32, 8, 150),
    (24, 4, 80),
    (16, 0, 30),
    (8, 0, 0),
)
"""Channels in a chart, tensors of a layer, and layers with charts, from the most to the least; the first that makes
the page small enough is taken."""


def report_html(report: Report, verbose: bool = False) -> str:
    """The page. verbose: with the notes for developers. Of a large network charts are thinned out till it is small."""
    rows = ranked(report.layers)
    data, texts = _data(report, rows), _texts(report, rows)
    page = html("report.html.j2", SCRIPTS, _view(report, rows, verbose, texts[data["chosen"]] if texts else None))
    room, packed = MAX_BYTES - len(page.encode("utf-8", "replace")), ""
    for channels, tensors, detailed in DETAILS:
        charts = _charts(report, channels, detailed)
        layers = [
            text | chart | {"tensors": text["tensors"][:tensors]} for text, chart in zip(texts, charts, strict=True)
        ]
        packed = as_script(data | {"layers": layers})
        if len(packed) <= room:
            break
    return page.replace(DATA, packed)


def _data(report: Report, rows: Sequence[Row]) -> dict[str, Any]:
    """What the script is given beside the layers. chosen: the id of the layer that is shown first."""
    pairs = [(layer.headroom.sum, layer.headroom.product) for layer in report.layers]
    return {
        "chosen": rows[0].layer.id if rows else 0,
        "sqnr": _sqnr(report),
        "limit": max([32.0, *(short(tensor.bits) for pair in pairs for tensor in pair if tensor)]),
        "pareto": sections.search(report)["pareto"],
        "columns": sections.columns(report),
    }


def _texts(report: Report, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """All that is said of each layer, with its tensors, the widest first."""
    by_layer, wide = {row.layer.id: row for row in rows}, defaultdict(list)
    for tensor in sorted(report.tensors, key=lambda each: -each.bits):
        wide[tensor.layer].append(_cells(tensor))
    short = names.plain(layer.name for layer in report.layers)
    return [
        layer_texts(each, report, by_layer) | {"label": names.label(short[each.name]), "tensors": wide[each.id]}
        for each in report.layers
    ]


def _charts(report: Report, channels: int, most: int) -> list[dict[str, Any]]:
    """The charts of each layer; where they are too many, of those with the largest shares."""
    known = [layer for layer in report.layers if layer.values is not None or layer.weights is not None]
    known.sort(key=lambda layer: -(layer.shares.alone if layer.shares else 0.0))
    kept = {layer.id for layer in known[:most]}
    return [layer_charts(each, channels) if each.id in kept else NO_CHARTS for each in report.layers]


def _view(report: Report, rows: Sequence[Row], verbose: bool, chosen: dict[str, Any] | None) -> dict[str, Any]:
    """What the template shows beside the facts. chosen: the texts of the layer that is shown to who has no script."""
    return {
        "report": report,
        "short": names.plain(layer.name for layer in report.layers),
        "why": lambda name, default="It was not measured.": reason(report, name, default),
        "chosen": chosen,
        "place": rows[0].layer.id + 1 if rows else 1,
        "table": sections.table(report, rows),
        "settings": sections.settings(report),
        **sections.head(report),
        **sections.where(report, rows),
        **sections.headroom(report),
        **sections.time(report),
        **sections.search(report),
        **sections.notes(report, verbose),
    }


def _cells(tensor: ProvenTensor) -> list[str]:
    """A tensor as a line of a table."""
    width = f"{number(tensor.bits)}: {integer(tensor.lo)} to {integer(tensor.hi)}"
    return [tensor.name, tensor.operator, tensor.dtype, width, number(tensor.seen_bits), tensor.rule]


def _sqnr(report: Report) -> list[dict[str, Any]]:
    sqnr = [layer.sqnr for layer in report.layers]
    values = {
        "isolated": [each.isolated if each else None for each in sqnr],
        "cumulative": [each.cumulative if each else None for each in sqnr],
    }
    colors = {"isolated": "line", "cumulative": "act"}
    return [
        {"label": name, "color": colors[name], "values": [None if v is None else short(v) for v in line]}
        for name, line in values.items()
    ]
