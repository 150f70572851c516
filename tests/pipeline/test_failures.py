"""Runs that cannot start, that fail on the way, or whose results are not what they should be; and progress."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import mrt
from mrt.errors import ConfigError, DataError, ModelFileError, MRTError, VerificationError
from mrt.pipeline import run_pipeline
from mrt.progress import Reporter
from mrt.runtime import Module
from tests.pipeline.runs import config_of, contents, run


def test_a_stage_that_fails_leaves_what_was_there(copy: Path) -> None:
    x = np.zeros((20, 2, 6, 6), np.float32)
    x[9, 0, 0, 0] = np.nan
    np.savez(copy / "nan.npz", x=x)
    before = contents(copy / "out")
    with pytest.raises(DataError, match="sample 9 holds NaN"):
        run(copy, f"data.calibration.npz={copy / 'nan.npz'}", first="calibrate")
    assert contents(copy / "out") == before


def test_integers_that_differ_from_evaluate_are_an_error(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    correct = Module.run_integer

    def wrong(self: Module, x: Mapping[str, np.ndarray]) -> np.ndarray:
        y = correct(self, x)
        assert isinstance(y, np.ndarray)
        return y + (np.arange(y.size).reshape(y.shape) == 0)

    monkeypatch.setattr(Module, "run_integer", wrong)
    with pytest.raises(VerificationError, match="integers of sample 0 differ from graph.evaluate in 1 of 5 elements"):
        run(copy, first="evaluate")


def test_the_module_of_another_model_is_not_evaluated(copy: Path) -> None:
    """Not even where the record of the stage is of that module."""
    out = copy / "out"
    replace(mrt.load(out), notes=("another",)).compile().save(out / "model.so")
    with pytest.raises(ConfigError, match=r"model\.so is missing or was changed; start from compile"):
        run(copy, first="evaluate")
    stage = out / "stages" / "compile.json"
    facts = json.loads(stage.read_text())
    facts["files"] = {name: hashlib.sha256((out / name).read_bytes()).hexdigest() for name in facts["files"]}
    assert set(facts["files"]) == {"model.so", "model.so.json"}
    stage.write_text(json.dumps(facts))
    with pytest.raises(ModelFileError, match=r"model\.so was compiled from the model with the digest"):
        run(copy, first="evaluate")
    run(copy, first="compile")


@pytest.mark.parametrize(
    ("overrides", "options", "needed"),
    [
        ([], {"first": "quantise"}, "quantise is no stage; the stages are prepare"),
        ([], {"first": "evaluate", "last": "prepare"}, "from evaluate to prepare there is no stage"),
        (["data={}"], {}, "data.calibration is missing"),
        (["data.test=null"], {}, "data.test is missing"),
        (["output=null"], {}, "output is missing"),
    ],
)
def test_runs_that_cannot_start(copy: Path, overrides: list[str], options: dict[str, str], needed: str) -> None:
    with pytest.raises(ConfigError, match=needed):
        run(copy, *overrides, **options)


def test_an_output_that_cannot_be_written_is_told_first(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written: Not a directory"):
        run(copy, output=tmp_path / "file" / "out")


def test_a_full_disk_leaves_no_half_file(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    before = contents(copy / "out")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(MRTError, match=r"thresholds\.json: No space left on device"):
        run(copy, first="calibrate")
    assert contents(copy / "out") == before


def test_a_model_that_does_not_fit_the_disk_leaves_the_old_one(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []

    def full(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 3:
            raise OSError(28, "No space left on device")

    before = contents(copy / "out")
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(MRTError, match="No space left on device"):
        run(copy, "quantize.activation.bits=5", first="quantize", last="quantize")
    assert contents(copy / "out") == before
    mrt.verify(copy / "out")


def test_progress_is_plain_lines_where_there_is_no_terminal(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mrt.progress.APART", 0.0)
    written = StringIO()
    run_pipeline(config_of(copy), "calibrate", "calibrate", report=Reporter(Console(file=written)))
    lines = written.getvalue().splitlines()
    assert lines[:3] == [f"calibrate: {n} of 20 samples" for n in (8, 16, 20)]
    assert lines[3].startswith("calibrate: done in ")


def test_progress_is_a_bar_on_a_terminal() -> None:
    written = StringIO()
    report = Reporter(Console(file=written, force_terminal=True))
    with report.progress("calibrate", 4) as progress:
        progress(4)
    assert "4/4" in written.getvalue()
