"""Whoever waits sees that work goes on and at what, on a terminal and elsewhere."""

from __future__ import annotations

import time
from io import StringIO

import pytest
from rich.console import Console

from mrt import progress
from mrt.progress import Reporter


def test_a_step_that_tells_nothing_says_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET", 0.03)
    written = StringIO()
    report = Reporter(Console(file=written, width=100))
    with report.step("quantize"):
        time.sleep(0.1)
        with report.progress("correct biases", 100, "layers") as tell:
            tell(7)
            time.sleep(0.1)
    lines = written.getvalue().splitlines()
    assert lines[0].startswith("quantize: ") and lines[0].endswith(" s so far")
    assert any(line.endswith(" s so far, correct biases: 7 of 100 layers") for line in lines)
    time.sleep(0.1)
    assert written.getvalue().splitlines() == lines


def test_who_tells_often_enough_is_not_spoken_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET", 5.0)
    written = StringIO()
    report = Reporter(Console(file=written))
    with report.step("prepare"):
        report.line("a note")
    assert written.getvalue() == "a note\n"


def test_lines_come_some_time_apart_and_the_last_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "APART", 1000.0)
    written = StringIO()
    with Reporter(Console(file=written)).progress("calibrate", 50) as tell:
        for done in range(1, 51):
            tell(done)
    assert written.getvalue().splitlines() == ["calibrate: 5 of 50 samples", "calibrate: 50 of 50 samples"]


def test_a_failure_ends_the_telling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET", 0.2)
    written = StringIO()
    report = Reporter(Console(file=written))
    with pytest.raises(KeyboardInterrupt), report.step("compile"):
        raise KeyboardInterrupt
    time.sleep(0.3)
    assert written.getvalue() == ""


def test_a_terminal_shows_the_step_its_part_and_lines_between() -> None:
    written = StringIO()
    report = Reporter(Console(file=written, force_terminal=True, width=80))
    with report.step("quantize"):
        with report.progress("choose bits", 0):
            report.line("a note")
        with report.progress("correct biases", 4) as tell:
            tell(2)
            report.line("another")
    shown = written.getvalue()
    assert all(text in shown for text in ("quantize", "choose bits", "a note\n"))
    assert shown.index("choose bits") < shown.index("correct biases") < shown.index("another\n")
    assert "/4" in shown and "/?" not in shown


def test_silence_is_silent(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "QUIET", 0.02)
    with progress.silent().step("read"):
        time.sleep(0.06)
    assert capsys.readouterr() == ("", "")
