"""The page and the text of a report: names are text, missing parts say why, large networks stay small."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
import string
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from mrt.cli import app
from mrt.errors import ModelFileError
from mrt.report.facts import report_bytes
from mrt.report.page import numbers, page_files, saved_report
from mrt.report.page.layers import ranked
from mrt.report.page.markdown import code, report_markdown, text
from mrt.report.page.names import instruction, plain, shortened
from mrt.report.page.packing import pack
from mrt.report.page.page import MAX_BYTES, report_html
from tests.made_reports import HOSTILE, made_report, names


class Page(HTMLParser):
    """The elements of a page with their attributes, its text, and what stands in its scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script" and self.scripts and self.cdata_elem:
            self.scripts[-1] += data
        else:
            self.text += data

    def all(self, name: str, value: str) -> list[dict[str, str | None]]:
        """The attributes of elements that have an attribute of this value."""
        return [each for _, each in self.elements if value in (each.get(name) or "").split()]


def data_of(page: Page) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(page.scripts[1])))


def unpacked(packed: dict[str, Any]) -> list[float | None]:
    """What the script makes of packed numbers, by the words of its comment."""
    letters = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
    pairs = zip(packed["packed"][::2], packed["packed"][1::2], strict=True)
    codes = [letters.index(a) * 64 + letters.index(b) for a, b in pairs]
    lo, hi = packed["lo"], packed["hi"]
    return [None if c == 4095 else lo + (hi - lo) * c / 4094 for c in codes]


@pytest.mark.parametrize(
    "values", [[], [None], [3.0], [0.0, 1.0, None, 0.3], [-1e-30, 1e30], [math.nan, 1.0, math.inf]]
)
def test_packed_numbers_are_near(values: list[float | None]) -> None:
    known = [v for v in values if v is not None and math.isfinite(v)]
    step = (max(known) - min(known)) / 4094 if known else 0.0
    for value, found in zip(values, unpacked(pack(values)), strict=True):
        if value is None or not math.isfinite(value):
            assert found is None
        else:
            assert found == pytest.approx(value, abs=step, rel=1e-5)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "∞"),
        (0.0, "0.00"),
        (-3.14159, "−3.14"),
        (99.96, "100"),
        (9.996, "10.0"),
        (0.0123, "0.012"),
        (0.00001234, "1.23 × 10⁻⁵"),
        (12345.6, "12\u202f346"),
    ],
)
def test_numbers(value: float | None, said: str) -> None:
    assert numbers.number(value) == said


def test_units() -> None:
    assert [numbers.size(count) for count in (None, 0, 999, 1000, 1 << 20, 5 << 30)] == [
        "–",
        "0 B",
        "999 B",
        "0.98 KiB",
        "1.00 MiB",
        "5.00 GiB",
    ]
    assert [numbers.duration(s) for s in (3.26e-4, 0.0011, 2.5, 600)] == ["326 µs", "1.10 ms", "2.50 s", "10 min"]
    assert [numbers.percent(share) for share in (0, 0.0001, 0.1234, -0.5, None)] == [
        "0.0 %",
        "< 0.1 %",
        "12.3 %",
        "−50.0 %",
        "–",
    ]


def test_long_names_keep_their_ends() -> None:
    name = "/model/encoder/layers.11/attention/query"
    assert len(shortened(name, 20)) == 20 and shortened(name, 20).endswith("query") and shortened("x", 20) == "x"
    assert shortened("a\u202eb\nc", 20) == "a\ufffdb\ufffdc"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("llvm.x86.avx512.vpdpbusd.512", "vpdpbusd"),
        ("llvm.aarch64.neon.udot.v4i32.v16i8", "udot"),
        ("llvm.x86.ssse3.pmadd.ub.sw.128", "pmaddubsw"),
        ("llvm.x86.avx512.pmaddw.d.512", "pmaddwd"),
        ("llvm.riscv.vwmaccu.nxv8i16", "vwmaccu"),
        ("vpdpbusd", "vpdpbusd"),
        ("", ""),
    ],
)
def test_instructions_have_the_names_of_manuals(name: str, said: str) -> None:
    assert instruction(name) == said


def test_names_are_told_without_what_most_of_them_share() -> None:
    names = ["/model.0/conv/Conv_output_0", "/model.1/act/Mul_output_0", "/model.22/Concat_6_output_0", "images"]
    assert list(plain(names).values()) == ["0/conv/Conv", "1/act/Mul", "22/Concat_6", "images"]
    assert plain(["a_x", "a", "b_x", "c_x"]) == {"a_x": "a_x", "a": "a", "b_x": "b", "c_x": "c"}
    assert plain(["t33", "t50"]) == {"t33": "t33", "t50": "t50"} and plain([]) == {}
    assert plain(["layer.1", "layer.2"]) == {"layer.1": "layer.1", "layer.2": "layer.2"}


def test_names_are_text() -> None:
    report = made_report(["data", HOSTILE])
    model = report.model.model_copy(update={"name": HOSTILE, "file": HOSTILE})
    page = Page(report_html(report.model_copy(update={"model": model, "missing": {"x": HOSTILE}}), verbose=True))
    assert not [tag for tag, _ in page.elements if tag in ("img", "iframe", "linkobject")]
    assert not [each for _, each in page.elements if any(name.startswith("on") for name in each)]
    assert len(page.scripts) == 3 and HOSTILE in page.text
    assert [each["title"] for each in page.all("class", "link")][-1] == HOSTILE
    assert data_of(page)["layers"][1]["name"] == HOSTILE
    assert HOSTILE not in report_html(report)


def test_only_its_own_scripts_run() -> None:
    page = Page(report_html(made_report(names(2))))
    (policy,) = (each["content"] or "" for _, each in page.elements if each.get("http-equiv"))
    digests = {base64.b64encode(hashlib.sha256(page.scripts[i].encode()).digest()).decode() for i in (0, 2)}
    assert set(re.findall("'sha256-(.*?)'", policy)) == digests
    assert "default-src 'none'" in policy and "unsafe-inline" not in policy.partition("script-src")[2]
    links = [each.get("src") or each.get("href") or "" for _, each in page.elements]
    assert not [link for link in links if link and not link.startswith(("#", "data:,"))]


@pytest.mark.parametrize("count", [0, 1, 30])
def test_every_layer_has_its_rows(count: int) -> None:
    layers = names(count)
    page = Page(report_html(made_report(layers)))
    data = data_of(page)
    assert [layer["name"] for layer in data["layers"]] == layers
    assert len(page.all("class", "fall")) == count + (3 if count > 16 else 2 if count else 0)
    assert [each["title"] for each in page.all("class", "link") if each["data-layer"]][-count or 1 :][:count] == layers


def test_the_waterfall_starts_where_the_bar_before_ended() -> None:
    report = made_report(names(12))
    rows = ranked(report.layers)
    total = sum(layer.shares.alone for layer in report.layers if layer.shares)
    styles = [each["style"] or "" for each in Page(report_html(report)).all("class", "act") if each.get("style")]
    bars = [tuple(map(float, re.findall(r"([\d.e-]+)%", style))) for style in styles]
    at = 0.0
    found = [bar for bar in bars if len(bar) == 2][-len(bars) :]
    for row in rows:
        wide = 100 * row.output / max(total, 1.0)
        assert any(abs(bar[0] - at) < 0.1 and abs(bar[1] - wide) < 0.1 for bar in found), row.layer.name
        at += 100 * row.share / max(total, 1.0)
    assert [row.share for row in rows] == sorted((row.share for row in rows), reverse=True)


@pytest.mark.parametrize("count", [300, pytest.param(450, marks=(pytest.mark.slow, pytest.mark.exhaustive))])
def test_large_networks_stay_small(count: int) -> None:
    layers = [f"/model/encoder/layers.{i}/attention/self/query/MatMul_output_0" for i in range(count)]
    report = made_report(layers, channels=24)
    html = report_html(report)
    data = data_of(Page(html))
    assert len(html.encode()) <= MAX_BYTES == 1_000_000
    assert [layer["name"] for layer in data["layers"]] == layers
    worst = ranked(report.layers)[0].layer
    assert data["layers"][worst.id]["values"] and data["layers"][worst.id]["channels"]


def test_what_is_missing_says_why() -> None:
    report = made_report(names(3))
    layers = [each.model_copy(update={"shares": None, "sqnr": None, "values": None}) for each in report.layers]
    reasons = {
        key: f"No {key}, since nothing ran; mrt run CONFIG.yaml does."
        for key in ("accuracy", "latency", "time", "trials", "layers.shares", "layers.sqnr", "layers.values", "outputs")
    }
    gone = dict.fromkeys(("accuracy", "latency", "time", "trials", "outputs", "error"))
    bare = report.model_copy(update=gone | {"layers": layers, "missing": reasons})
    page = Page(report_html(bare))
    assert [reason for reason in reasons.values() if reason not in page.text] == []
    written = report_markdown(bare)
    assert all(reasons[key] in written for key in ("accuracy", "latency", "time", "layers.shares"))


def test_internal_notes_are_for_developers() -> None:
    report = made_report(names(2))
    for write in (report_html, report_markdown):
        assert "A note that is internal" not in write(report) and "A note that is internal" in write(report, True)
        places = [write(report).index(f"A note that is {kind}") for kind in ("warning", "try", "done", "fine")]
        assert places == sorted(places)


def test_the_verdict_follows_from_the_interval() -> None:
    report = made_report(names(2))
    assert "No loss of accuracy that 1000 samples could show" in report_html(report)
    accuracy = report.accuracy and report.accuracy.model_copy(update={"difference": -0.03})
    assert "loses 3.00 points" in report_html(report.model_copy(update={"accuracy": accuracy}))


def test_a_weak_part_of_an_output_is_told() -> None:
    assert "boxes 1 of boxes: 9.00 dB, where classes 0 of classes has 31.0 dB" in report_markdown(made_report(names(2)))


def test_markdown_is_text() -> None:
    report = made_report(["data", HOSTILE, "a|b``c", "x\ny"])
    written = report_markdown(report, verbose=True)
    outside = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", re.sub(r"(?s)```.*?```", "", written))
    assert not re.search(r"(?<!\\)[<>{}]", outside)
    for block in re.findall(r"(?:^\|.*\n)+", written, re.M):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
    assert text("@bob #12 *a* [b](c) snake_case") == "@\u2060bob #\u206012 \\*a\\* \\[b\\](c) snake_case"
    assert (code("a`b"), code("`"), code("a|b"), code("")) == ("``a`b``", "`` ` ``", "`a\\|b`", "`  `")


def test_the_command_writes_both(tmp_path: Path) -> None:
    report = made_report(names(3))
    (tmp_path / "report.json").write_bytes(report_bytes(report))
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert page_files(report) == {name: (tmp_path / name).read_bytes() for name in ("report.html", "report.md")}
    assert {path.name for path in tmp_path.iterdir()} == {"report.json", "report.html", "report.md"}


def searched(folder: Path, *results: tuple[float, float, str]) -> None:
    """What a search leaves: of each trial its metric, its cost, and why it failed."""
    folder.mkdir(parents=True)
    lines: list[dict[str, Any]] = [
        {"format_version": 1, "origins": {}},
        {"request": {"sensitivity": "x"}, "result": {}},
    ]
    for metric, cost, failure in results:
        judged = {"value": metric, "reference": 90.0, "shortfall": -0.1, "error": 0.1}
        costs = {"latency": cost, "bytes": 100, "bits": 8.0}
        found = {"digest": "d", "judged": judged, "cost": costs, "milliseconds": 0.5, "failure": failure}
        lines.append({"request": {"quantize": {}, "why": f"costs {cost}"}, "result": found, "seconds": 1.0})
    text = "\n".join(map(json.dumps, lines))
    (folder / "trials.jsonl").write_text(text + '\n{"request": {"quan')
    outcome = {"metric": "top1", "objective": "latency", "best": {}, "pareto": [{"trial": 0}, {"trial": 2}]}
    (folder / "tuned.json").write_text(json.dumps(outcome))


@pytest.mark.parametrize("place", ["tune", "."])
def test_the_trials_of_a_search_are_told(tmp_path: Path, place: str) -> None:
    """Of one in the folder of the report, and of the one that made it."""
    folder = tmp_path if place == "tune" else tmp_path / "tune" / "tuned"
    searched(tmp_path / "tune", (88.0, 1.0, ""), (0.0, 9.0, "needs 33 bits"), (89.5, 1.25, ""), (87.0, 1.5, ""))
    folder.mkdir(exist_ok=True)
    (folder / "report.json").write_bytes(report_bytes(made_report(names(2), trials=None)))
    trials = saved_report(folder).trials
    assert trials is not None and (trials.metric, trials.objective) == ("top1, %", "latency")
    assert [(each.name, each.cost, each.is_best) for each in trials.trials] == [
        ("0", 1.0, True),
        ("2", 1.25, True),
        ("3", 1.5, False),
    ]
    data = data_of(Page(report_html(saved_report(folder))))
    assert [(point["x"], point["y"]) for point in data["pareto"]["points"]] == [(1.0, 88.0), (1.25, 89.5), (1.5, 87.0)]
    (tmp_path / "tune" / "tuned.json").write_text("{}")
    with pytest.raises(ModelFileError, match=r"tuned.json is malformed .*metric"):
        saved_report(folder)


def test_a_report_of_another_model_is_refused(tmp_path: Path) -> None:
    report = made_report(names(2))
    (tmp_path / "report.json").write_bytes(report_bytes(report))
    (tmp_path / "certificate.json").write_text("{}")
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 1 and "--from report" in result.output and len(result.output.splitlines()) == 1
    assert report.model.digest[:12] in result.output and hashlib.sha256(b"{}").hexdigest()[:12] in result.output


NEEDED = dict.fromkeys(("ink", "soft", "faint", "ok", "warn"), 4.5) | dict.fromkeys(("act", "wgt", "line"), 3.0)


def luminance(color: str) -> float:
    """WCAG 2: relative luminance of a color like #1a2b3c or #fff."""
    digits = color[1:] if len(color) == 7 else "".join(2 * digit for digit in color[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_can_be_told_from_what_is_behind_them() -> None:
    """WCAG 2 AA: 4.5 to 1 for text, 3 to 1 for the parts of charts that tell something."""
    css = (files("mrt.report.page") / "assets" / "report.css").read_text()
    themes = [dict(re.findall(r"--(\w+): (#\w+)", block)) for block in re.findall(r"\{[^{}]*--bg:[^{}]*\}", css)]
    assert len(themes) == 4
    for theme in themes:
        for behind in ("bg", "card", "wash"):
            for name, least in (
                *dict.fromkeys(("ink", "soft", "faint", "ok", "warn"), 4.4).items(),
                ("act", 3),
                ("line", 2.8),
            ):
                lights = sorted((luminance(theme[name]), luminance(theme[behind])))
                assert (lights[1] + 0.05) / (lights[0] + 0.05) >= least, (name, behind, theme)


@pytest.mark.parametrize("place", ["", "nothing"])
def test_without_a_report_the_command_says_what_makes_one(tmp_path: Path, place: str) -> None:
    result = CliRunner().invoke(app, ["report", str(tmp_path / place)])
    assert result.exit_code == 1 and "mrt run" in result.output and str(tmp_path) in result.output
    assert len(result.output.splitlines()) == 1 and not list(tmp_path.iterdir())


def test_histograms_are_those_of_the_facts() -> None:
    report = made_report(names(2))
    layer = report.layers[1]
    assert layer.values is not None and layer.weights is not None
    drawn = data_of(Page(report_html(report)))["layers"][1]
    counts = np.array(layer.values.histogram.counts)
    found = [0.0 if v is None else 10**v for v in unpacked(drawn["values"]["counts"])]
    assert np.allclose(found, counts / counts.sum(), rtol=0.01)
    spread = np.array([channel.spread for channel in layer.values.channels]).ravel()
    assert np.allclose(unpacked(drawn["channels"]["quantiles"]), spread, atol=2e-3)  # type: ignore[arg-type]
    assert drawn["values"]["range"] == [-3.075, 3.3] and drawn["values"]["levels"] == 256
