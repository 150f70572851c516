"""Runs that take what an earlier one left: the same files, only what changed made again, anything else refused."""

from __future__ import annotations

import hashlib
import json
import os
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import mrt
from mrt.errors import BusyError, ConfigError, DataError
from mrt.pipeline import run_pipeline
from mrt.progress import Reporter
from mrt.result_folder import held
from tests.pipeline.runs import config_of, contents, run, said, save_network


@pytest.mark.parametrize("stage", ["calibrate", "quantize", "evaluate"])
def test_a_resumed_run_gives_the_same_files(copy: Path, stage: str) -> None:
    before = contents(copy / "out")
    run(copy, first=stage)
    after = contents(copy / "out")
    assert set(after) == set(before)
    timed = {
        "summary.json",
        "model.so",
        "model.so.json",
        *(name for name in before if name.startswith("stages/") and name.count("/") == 1),
    }
    assert {name for name in before if before[name] != after[name]} <= timed


@pytest.mark.usefixtures("compiled_anew")
def test_what_tuning_measures_stays_beside_the_model_and_is_used_again(copy: Path) -> None:
    def compiled(*overrides: str) -> str:
        told = StringIO()
        run_pipeline(config_of(copy, *overrides), "compile", "compile", report=Reporter(Console(file=told, width=200)))
        return told.getvalue()

    first = compiled("compile.tune={trials: 1}", "compile.target={features: [], threads: 1}")
    assert "0 of" in first and "tune: 0 tilings" not in first
    held = contents(copy / "out" / "tilings")
    assert set(held) == {"workloads.json", "records.json"} and all(held.values())
    assert "tune: 0 tilings measured" in compiled("compile.tune={trials: 1}", "compile.target.threads=1")
    assert "as was measured" in compiled("compile.target.threads=1")
    assert contents(copy / "out" / "tilings") == held
    with np.load(copy.parent / "run" / "data.npz") as data:
        integers = mrt.load(copy / "out").quantize_inputs(data["x"][:2])
    (expected,) = mrt.load(copy / "out").rebatched(2).graph.evaluate(integers)
    np.testing.assert_array_equal(mrt.load_module(copy / "out" / "model.so").run_integer(integers), expected)


def test_a_run_of_what_is_there_does_nothing(copy: Path) -> None:
    run(copy)
    before, summary = contents(copy / "out"), json.loads((copy / "out" / "summary.json").read_bytes())
    times = {path: path.stat().st_mtime_ns for path in (copy / "out").rglob("*")}
    assert "nothing is done (--from STAGE makes it anew)" in said(copy)
    assert run(copy) == summary and run(copy, last="quantize") is None
    assert contents(copy / "out") == before
    assert {path: path.stat().st_mtime_ns for path in (copy / "out").rglob("*") if path != copy / "out"} == {
        path: time for path, time in times.items() if path != copy / "out"
    }
    assert "evaluate: done" in said(copy, first="evaluate")


def test_only_stages_that_depend_on_what_changed_are_run(copy: Path) -> None:
    run(copy)
    told = said(copy, "quantize.activation.bits=5")
    assert [line for line in told.splitlines() if line.endswith("taken as saved")] == [
        "prepare: taken as saved",
        "calibrate: taken as saved",
    ]
    assert "quantize: done" in told and "prepare: done" not in told
    assert mrt.load(copy / "out").inputs[0].hi == 15
    model = copy / "net.onnx"
    save_network(model, seed=50)
    assert "taken as saved" not in said(copy, "quantize.activation.bits=5")
    (copy / "out" / "graph.json").write_text("{}")
    assert "quantize: done" in said(copy, "quantize.activation.bits=5")


@pytest.mark.parametrize("way", ["again", "from"])
def test_an_interrupted_run_goes_on_where_it_was_and_leaves_the_former_result(
    copy: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    run(copy)
    before, options = contents(copy / "out"), ["quantize.activation.bits=5", "calibrate.method=mse"]
    kept = "^finished and kept for the next run: calibrate, quantize, compile$"

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt, match=kept):
        patch.setattr("mrt.model_evaluation._compared", interrupt)
        run(copy, *options)
    after = contents(copy / "out")
    assert {name: content for name, content in after.items() if not name.startswith(".unfinished/")} == before
    mrt.verify(copy / "out")
    told = said(copy, *options, **({"first": "evaluate"} if way == "from" else {}))
    assert "evaluate: done" in told and "compile: done" not in told
    assert mrt.load(copy / "out").inputs[0].hi == 15
    assert mrt.load_module(copy / "out" / "model.so").digest == mrt.load(copy / "out").digest
    assert not [name for name in contents(copy / "out") if name.startswith(".")]


def test_what_an_interrupted_run_left_is_removed_by_another_one(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(copy)
    before = contents(copy / "out")
    with monkeypatch.context() as patch, pytest.raises(OSError):
        patch.setattr("mrt.pipeline._put_in_place", lambda *_: (_ for _ in ()).throw(OSError()))
        run(copy, "quantize.activation.bits=5", "data.test.slice=[20, 30]")
    assert len(contents(copy / "out")) > len(before)
    run(copy)
    assert contents(copy / "out") == before


def test_a_second_run_in_a_folder_says_so_at_once(copy: Path) -> None:
    with held(copy / "out"):
        with pytest.raises(BusyError, match=f"out is being written by process {os.getpid()}; wait"):
            run(copy)
        with pytest.raises(BusyError, match="out is being written"):
            mrt.load(copy / "out").save(copy / "out")
        assert mrt.verify(copy / "out").max_bits <= 32
        assert mrt.load_module(copy / "out" / "model.so").digest == mrt.load(copy / "out").digest
    run(copy, first="evaluate")


def test_a_later_section_may_change(copy: Path) -> None:
    run(copy, "quantize.activation.bits=5", first="quantize", last="quantize")
    assert mrt.load(copy / "out").inputs[0].hi == 15
    spoilt = ("model.so", "model.so.json", "summary.json")
    assert [name for name in spoilt if (copy / "out" / name).exists()] == []
    with pytest.raises(ConfigError, match="another section quantize; start from quantize"):
        run(copy, first="compile")


@pytest.mark.parametrize(
    ("override", "needed"),
    [
        ("calibrate.method=historical", "another section calibrate; start from calibrate"),
        ("prepare.cut_softmax=false", "another section prepare; start from prepare"),
        ("data.calibration.slice=[0, 10]", "another section data.calibration; start from calibrate"),
    ],
)
def test_saved_results_of_another_configuration_are_refused(copy: Path, override: str, needed: str) -> None:
    before = contents(copy / "out")
    with pytest.raises(ConfigError, match=needed):
        run(copy, override, first="quantize")
    assert contents(copy / "out") == before


def test_saved_results_of_another_model_are_refused(copy: Path) -> None:
    save_network(copy / "net.onnx", seed=50)
    with pytest.raises(ConfigError, match="another model; start from prepare"):
        run(copy, first="evaluate")


def test_results_of_other_data_are_refused(copy: Path, finished: Path, request: pytest.FixtureRequest) -> None:
    data, before = finished / "data.npz", contents(copy / "out")
    original = data.read_bytes()
    request.addfinalizer(lambda: data.write_bytes(original))
    with np.load(data) as file:
        changed = dict(file)
    changed["x"][0, 0, 0, 0] += 1
    np.savez(data, **changed)
    with pytest.raises(ConfigError, match=r"another content of data\.calibration; start from calibrate"):
        run(copy, first="quantize")
    data.unlink()
    with pytest.raises(DataError, match=r"data\.calibration .*data\.npz\) does not exist"):
        run(copy, first="quantize")
    assert contents(copy / "out") == before
    data.write_bytes(original)
    run(copy, first="quantize", last="quantize")


def test_missing_and_changed_results_are_refused(copy: Path) -> None:
    thresholds = copy / "out" / "stages" / "calibrate" / "thresholds.json"
    thresholds.write_text(thresholds.read_text().replace("lo", "hi", 1))
    with pytest.raises(ConfigError, match="thresholds.json is missing or was changed; start from calibrate"):
        run(copy, first="quantize")
    (copy / "out" / "stages" / "calibrate.json").write_text("{")
    with pytest.raises(ConfigError, match="no record of a stage"):
        run(copy, first="quantize")
    (copy / "out" / "stages" / "calibrate.json").unlink()
    with pytest.raises(ConfigError, match="stage calibrate was not run"):
        run(copy, first="quantize")


def test_nothing_is_made_where_there_is_nothing_to_start_from(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="stage prepare was not run"):
        run(copy, first="calibrate", output=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_run_stops_after_the_last_stage(copy: Path, tmp_path: Path) -> None:
    assert run(copy, last="calibrate", output=tmp_path / "new") is None
    assert set(contents(tmp_path / "new")) == {
        "stages/prepare.json",
        "stages/prepare/graph.json",
        "stages/prepare/params.safetensors",
        "stages/prepare/postprocess.json",
        "stages/prepare/postprocess.safetensors",
        "stages/calibrate.json",
        "stages/calibrate/thresholds.json",
    }


def test_thresholds_of_an_earlier_format_are_refused(copy: Path) -> None:
    run(copy, first="calibrate", last="calibrate")
    thresholds, record = (copy / "out" / "stages" / name for name in ("calibrate/thresholds.json", "calibrate.json"))
    facts = json.loads(thresholds.read_text())
    thresholds.write_text(json.dumps({"format_version": 1, "thresholds": facts["thresholds"]}))
    done = json.loads(record.read_text())
    done["files"]["stages/calibrate/thresholds.json"] = hashlib.sha256(thresholds.read_bytes()).hexdigest()
    record.write_text(json.dumps(done))
    with pytest.raises(ConfigError, match="format_version is 1, 4 is needed.*--from calibrate"):
        run(copy, first="quantize")
