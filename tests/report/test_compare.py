"""Two runs side by side: layers belong together by name, errors have one unit, what differs in the settings is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mrt.cli import app
from mrt.report.facts import Report, report_bytes
from mrt.report.page.compare import compare_html, compare_markdown, compare_text
from mrt.report.page.comparison import compared, labels
from tests.made_reports import HOSTILE, made_report, names


def better(report: Report, layer: int) -> Report:
    """The report with an error of one layer that is gone, which halves the whole error."""
    assert report.error is not None
    layers = list(report.layers)
    shares, sqnr = layers[layer].shares, layers[layer].sqnr
    assert shares is not None and sqnr is not None
    gone = {"shares": shares.model_copy(update={"alone": 0.0}), "sqnr": sqnr.model_copy(update={"cumulative": 77.0})}
    layers[layer] = layers[layer].model_copy(update=gone)
    error = report.error.model_copy(update={"whole": [each and each / 2 for each in report.error.whole]})
    model = report.model.model_copy(update={"digest": "f" * 64})
    return report.model_copy(update={"layers": layers, "error": error, "model": model})


def test_errors_are_of_one_unit() -> None:
    """Half of the whole error is the same share of half as much."""
    report = made_report(names(5))
    found = compared(report, better(report, 3), ("a", "b"))
    assert {pair.second.name for pair in found.pairs} == set(names(5))
    for pair in found.pairs:
        before, after = pair.errors
        assert before == pytest.approx(report.layers[pair.second.id].shares.alone)  # type: ignore[union-attr]
        assert after == pytest.approx(0.0 if pair.second.id == 3 else before / 2)
    changes = [abs(pair.change) for pair in found.pairs]
    assert changes == sorted(changes, reverse=True)


def test_layers_of_one_run_are_told() -> None:
    found = compared(made_report(["data", "a", "b"]), made_report(["data", "b", "c", "d"]), ("x", "y"))
    assert [pair.second.name for pair in sorted(found.pairs, key=lambda pair: pair.second.id)] == ["data", "b"]
    assert found.alone == (["a"], ["c", "d"])
    for write in (compare_html, compare_markdown, compare_text):
        assert re.search(r"nly in .*x.*: .*a", write(found)) and re.search(r"nly in .*y.*: .*c.*d", write(found))


def test_settings_that_differ_are_told_by_their_keys() -> None:
    first = made_report(names(2), settings={"quantize": {"activation": {"bits": 8}, "overrides": {}}, "same": [1]})
    changed = {"quantize": {"activation": {"bits": 16}, "overrides": {"a": {"bits": 4}}}, "same": [1]}
    found = compared(first, made_report(names(2), settings=changed), ("a", "b"))
    assert found.settings == [("quantize.activation.bits", "8", "16"), ("quantize.overrides.a.bits", "–", "4")]


def test_the_same_network_is_called_so() -> None:
    report = made_report(names(3))
    assert compared(report, report, ("a", "b")).verdict == "Both are the same integer network."
    assert compared(report, made_report(["x"]), ("a", "b")).verdict.startswith("No layer of the one")
    assert compared(report, better(report, 1), ("a", "b")).verdict.startswith(("layer1 changed", "layer0 changed"))


def test_nothing_measured_leaves_no_hole() -> None:
    report = made_report(names(3))
    layers = [each.model_copy(update=dict.fromkeys(("shares", "sqnr", "seconds"))) for each in report.layers]
    gone = dict.fromkeys(("accuracy", "outputs", "error", "latency", "time"))
    bare = report.model_copy(update=gone | {"layers": layers})
    for pair in ((bare, report), (report, bare), (bare, bare)):
        found = compared(*pair, ("a", "b"))
        assert "None" not in compare_text(found) + compare_markdown(found) and "nan" not in compare_text(found)
        assert compare_html(found)


def test_foreign_names_are_text() -> None:
    report = made_report(["data", HOSTILE])
    found = compared(report, better(report, 1), (HOSTILE, "b"))
    assert HOSTILE not in compare_html(found) and "<img" not in compare_html(found)
    rows = re.findall(r"(?:^\|.*\n)+", compare_markdown(found), re.M)
    assert rows and all(len({len(re.findall(r"(?<!\\)\|", r)) for r in block.splitlines()}) == 1 for block in rows)


def test_folders_are_called_by_what_tells_them_apart() -> None:
    assert labels(Path("/a/out/kws"), Path("/a/out/digits")) == ("kws", "digits")
    assert labels(Path("/a/one/kws"), Path("/a/two/kws")) == ("one/kws", "two/kws")
    assert labels(Path("/a"), Path("/a")) == ("/a", "/a")


def test_the_command_prints_and_writes(tmp_path: Path) -> None:
    report = made_report(names(3))
    for name, each in (("a", report), ("b", better(report, 2))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_bytes(report_bytes(each))
    before = (tmp_path / "a" / "report.json").read_bytes()
    result = CliRunner().invoke(app, ["compare", *(str(tmp_path / name) for name in "ab")])
    assert result.exit_code == 0, result.output
    assert "top-1" in result.output and "layer2" in result.output
    assert {path.name for path in (tmp_path / "b").iterdir()} == {"report.json", "compare.html", "compare.md"}
    assert [path.read_bytes() for path in (tmp_path / "a").iterdir()] == [before]
    result = CliRunner().invoke(app, ["compare", str(tmp_path / "a"), str(tmp_path)])
    assert result.exit_code == 1 and "mrt run" in result.output and len(result.output.splitlines()) == 1
