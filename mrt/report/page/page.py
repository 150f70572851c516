"""report.html of one run: one file without any request, at most a megabyte."""

from __future__ import annotations

from typing import Any

from mrt.report.facts import Report
from mrt.report.page import sections
from mrt.report.page.layers import layer_data, ranked
from mrt.report.page.numbers import integer, number
from mrt.report.page.packing import short
from mrt.report.page.render import html

HTML_FILE = "report.html"
MAX_BYTES = 1_000_000
SCRIPTS = ("charts.js", "common.js", "report.js")
DETAILS = ((96, 40, 1000), (48, 20, 1000), (32, 8, 400), (16, 4, 200), (12, 2, 100), (8, 0, 40), (4, 0, 0))
"""Channels in a chart, tensors of a layer, and layers with charts, from the most to the least; the first that makes
the page small enough is taken."""


def report_html(report: Report, verbose: bool = False) -> str:
    """The page. verbose: with the notes for developers. Of a large network charts are thinned out till it is small."""
    page = ""
    for detail in DETAILS:
        page = _page(report, verbose, *detail)
        if len(page.encode("utf-8", "replace")) <= MAX_BYTES:
            break
    return page


def _page(report: Report, verbose: bool, channels: int, tensors: int, detailed: int) -> str:
    rows = ranked(report.layers)
    by_layer = {row.layer.id: row for row in rows}
    with_charts = _with_charts(report, detailed)
    layers = [
        layer_data(layer, report, by_layer, channels, layer.id in with_charts)
        | {"tensors": _tensors(report, layer.id, tensors)}
        for layer in report.layers
    ]
    chosen = rows[0].layer.id if rows else 0
    search = sections.search(report)
    data = {
        "layers": layers,
        "chosen": chosen,
        "sqnr": _sqnr(report),
        "limit": max(
            [32.0, *(each["widths"][kind][0] for each in layers for kind in ("sum", "product") if each["widths"][kind])]
        ),
        "pareto": search["pareto"],
        "columns": sections.columns(report),
    }
    view: dict[str, Any] = {
        "report": report,
        "why": lambda name, default="It was not measured.": report.missing.get(name, default),
        "chosen": layers[chosen] if layers else None,
        "chosen_id": chosen,
        "table": sections.table(report),
        "settings": sections.settings(report),
        **sections.head(report),
        **sections.where(report, rows),
        **sections.headroom(report),
        **sections.time(report),
        **search,
        **sections.notes(report, verbose),
    }
    return html("report.html.j2", SCRIPTS, data, view)


def _with_charts(report: Report, most: int) -> set[int]:
    """The ids of the layers that keep their charts: those with the largest shares, where there are too many."""
    known = [layer for layer in report.layers if layer.values is not None or layer.weights is not None]
    known.sort(key=lambda layer: -(layer.shares.alone if layer.shares else 0.0))
    return {layer.id for layer in known[:most]}


def _tensors(report: Report, layer: int, most: int) -> list[list[str]]:
    """The integer tensors of a layer, the widest first, as the cells of a table."""
    mine = sorted((each for each in report.tensors if each.layer == layer), key=lambda each: -each.bits)
    return [
        [
            each.name,
            each.operator,
            each.dtype,
            f"{number(each.bits)}: {integer(each.lo)} to {integer(each.hi)}",
            number(each.seen_bits),
            each.rule,
        ]
        for each in mine[:most]
    ]


def _sqnr(report: Report) -> list[dict[str, Any]]:
    sqnr = [layer.sqnr for layer in report.layers]
    values = {
        "isolated": [each.isolated if each else None for each in sqnr],
        "cumulative": [each.cumulative if each else None for each in sqnr],
    }
    colors = {"isolated": "gray", "cumulative": "act"}
    return [
        {"label": name, "color": colors[name], "values": [None if v is None else short(v) for v in line]}
        for name, line in values.items()
    ]
