"""The pipeline on a small network: what it reports, what it saves, and that a resumed run is the same run."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

import mrt
from mrt import pipeline
from mrt.config import RunConfig, load_config
from mrt.errors import BusyError, ConfigError, DataError, ModelFileError, MRTError, VerificationError
from mrt.pipeline import run_pipeline
from mrt.progress import Reporter
from mrt.report.errors import read_errors
from mrt.result_folder import held
from mrt.runtime import Module
from mrt.symbol import GraphBuilder, TensorType
from mrt.symbol.operators.fake_quantize import FakeQuantize

CONFIG = """\
model: {path: net.onnx}
data:
  calibration: {npz: data.npz, x: x, slice: [0, 20]}
  test: {npz: data.npz, x: x, y: y, slice: [20, 47]}
calibrate: {batch_size: 8}
compile: {batch: 4}
evaluate: {check: 5, batch_size: 8}
output: out
"""


def weights(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.5, shape).astype(np.float32)


def save_network(path: Path, seed: int = 0) -> None:
    """A convolution, relu, a fully connected layer and a softmax over 5 classes, for float32 [1, 2, 6, 6]."""
    parameters = {
        "w": weights(4, 2, 3, 3, seed=seed),
        "b": weights(4, seed=seed + 1),
        "fc": weights(5, 144, seed=seed + 2),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["conv"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["conv"], ["relu"]),
        helper.make_node("Flatten", ["relu"], ["flat"]),
        helper.make_node("Gemm", ["flat", "fc"], ["logits"], transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 6, 6])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(value, name) for name, value in parameters.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def save_data(path: Path) -> None:
    rng = np.random.default_rng(7)
    np.savez(path, x=rng.normal(size=(47, 2, 6, 6)).astype(np.float32), y=rng.integers(0, 5, 47))


def silent() -> Reporter:
    return Reporter(Console(file=StringIO()))


def run(folder: Path, *overrides: str, **options: Any) -> dict[str, Any] | None:
    return run_pipeline(config_of(folder, *overrides), report=silent(), **options)


def config_of(folder: Path, *overrides: str) -> RunConfig:
    return load_config(folder / "config.yaml", overrides)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the whole pipeline was run; tests that change it take a copy."""
    folder = tmp_path_factory.mktemp("run")
    save_network(folder / "net.onnx")
    save_data(folder / "data.npz")
    (folder / "config.yaml").write_text(CONFIG)
    run(folder)
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """The same files under the same paths as seen by the configuration, in a folder of the test's own."""
    shutil.copytree(finished, tmp_path / "run")
    # Sections hold absolute paths, so the saved stages belong to the first folder: point the copy's data there.
    (tmp_path / "run" / "config.yaml").write_text(CONFIG.replace("data.npz", str(finished / "data.npz")))
    return tmp_path / "run"


def test_the_summary_is_what_independent_runs_give(finished: Path) -> None:
    summary = json.loads((finished / "out" / "summary.json").read_text())
    with np.load(finished / "data.npz") as data:
        x, y = data["x"][20:], data["y"][20:]
    session = onnxruntime.InferenceSession(finished / "net.onnx")
    reference = np.concatenate([session.run(None, {"x": sample[None]})[0] for sample in x])
    model = mrt.load(finished / "out")
    integers = [model.graph.evaluate(model.quantize_inputs(sample[None]))[0] for sample in x]
    logits = model.dequantize_outputs([np.concatenate(integers)])[0]
    float_logits = np.log(reference)
    float_logits += (logits - float_logits).mean(axis=1, keepdims=True)
    assert set(summary) == {
        "model", "samples", "float", "integer", "agreement", "sqnr_db", "integer_only", "max_bits", "operators",
        "seconds", "bit_exact_samples",
    }  # fmt: skip
    assert (summary["model"], summary["samples"], summary["bit_exact_samples"]) == ("net", 27, 5)
    assert summary["float"]["top1"] == np.mean(reference.argmax(1) == y)
    assert summary["integer"]["top1"] == np.mean(logits.argmax(1) == y)
    assert summary["agreement"] == np.mean(logits.argmax(1) == reference.argmax(1))
    assert 25 < summary["sqnr_db"] < 60
    assert summary["integer_only"] is True
    assert summary["max_bits"] == mrt.verify(finished / "out").max_bits
    assert summary["operators"] == model.graph.count_operators()
    assert list(summary["seconds"]) == ["prepare", "calibrate", "quantize", "compile", "evaluate"]


def test_the_output_folder_is_the_saved_model_with_its_module(finished: Path) -> None:
    files = set(contents(finished / "out"))
    assert {"graph.json", "params.safetensors", "quantization.json", "certificate.json", "model.so"} <= files
    assert "model.so.json" in files
    assert not [name for name in files if "tmp" in name]
    with np.load(finished / "data.npz") as data:
        x = data["x"][:3]
    session = onnxruntime.InferenceSession(finished / "net.onnx")
    expected = np.concatenate([session.run(None, {"x": sample[None]})[0] for sample in x])
    found = mrt.load_module(finished / "out" / "model.so")(x)
    np.testing.assert_allclose(found[0] if isinstance(found, list) else found, expected, atol=0.05)


def test_errors_of_tensors_are_those_of_an_independent_float_run(finished: Path, tmp_path: Path) -> None:
    """ONNX Runtime gives the float tensors, the saved model's integers are read with its saved scales."""
    table = read_errors(finished / "out")
    assert table is not None and table.samples == 5
    network = onnx.load(finished / "net.onnx")
    names = ["relu", "flat", "logits"]
    network.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    session = onnxruntime.InferenceSession(network.SerializeToString())
    with np.load(finished / "data.npz") as data:
        x = data["x"][20:25]
    model = mrt.load(finished / "out")
    for name in names:
        found = table.of_origin(name)
        assert found is not None
        integer, fact = found
        graph = model.graph.with_outputs([model.graph.by_name[integer]])
        q = np.stack([graph.evaluate(model.quantize_inputs(sample[None]))[0] for sample in x]).astype(np.float64)
        f = np.stack([session.run([name], {"x": sample[None]})[0] for sample in x]).astype(np.float64)
        scale = model.scales[integer]
        real = scale * (q - model.zero_points.get(integer, 0))
        assert fact.sqnr_db == pytest.approx(10 * np.log10(np.square(f).sum() / np.square(f - real).sum()), rel=1e-4)
        assert fact.worst_steps == pytest.approx(np.abs((f - real) / scale).max(), rel=1e-3)
        assert 25 < fact.sqnr_db < 60
    assert set(table.tensors) <= set(model.graph.by_name)


def test_no_check_measures_no_errors(copy: Path) -> None:
    summary = run(copy, "evaluate.check=0", first="evaluate")
    assert summary is not None and summary["bit_exact_samples"] == 0
    table = read_errors(copy / "out")
    assert table is not None and (table.samples, table.tensors) == (0, {})


def test_changed_errors_are_a_changed_result(copy: Path) -> None:
    path = copy / "out" / "errors.json"
    recorded = json.loads((copy / "out" / "stages" / "evaluate.json").read_text())["files"]
    assert recorded["errors.json"] == hashlib.sha256(path.read_bytes()).hexdigest()
    run(copy, "quantize.activation.bits=5", first="quantize", last="quantize")
    assert not path.exists()


def test_what_quantization_gave_up_is_told(tmp_path: Path) -> None:
    """A sum of 2304 products of 16 and 16 bits does not fit 32."""
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)
    w = numpy_helper.from_array(np.ones((2, 2304), np.float32), "w")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n]) for name, n in (("x", 2304), ("y", 2))]
    graph = helper.make_graph([node], "net", values[:1], values[1:], [w])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "net.onnx"
    )
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).normal(size=(47, 2304)))
    (tmp_path / "config.yaml").write_text(CONFIG.replace("y: y, ", ""))
    written = StringIO()
    wide = ("quantize.activation.bits=16", "quantize.weight.bits=16")
    run_pipeline(config_of(tmp_path, *wide), last="quantize", report=Reporter(Console(file=written)))
    notes = mrt.load(tmp_path / "out").notes
    weights, sums = notes
    assert "instead of 16" in weights and "partial sums, shifted right by" in sums
    assert {f"quantize: {note}" for note in notes} <= set(written.getvalue().splitlines())


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


def said(folder: Path, *overrides: str, **options: Any) -> str:
    """What a run reports."""
    written = StringIO()
    run_pipeline(config_of(folder, *overrides), report=Reporter(Console(file=written, width=200)), **options)
    return written.getvalue()


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
    written = StringIO()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("mrt.model_evaluation.compare", interrupt)
        run_pipeline(config_of(copy, *options), report=Reporter(Console(file=written, width=200)))
    assert "finished and kept for the next run: calibrate, quantize, compile" in written.getvalue()
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


def test_without_labels_only_agreement_is_told(copy: Path, tmp_path: Path) -> None:
    summary = run(copy, "data.test.y=null", "evaluate.samples=6", first="evaluate")
    assert summary is not None
    assert summary["float"] == summary["integer"] == {"top1": None}
    assert summary["samples"] == 6 and 0 <= summary["agreement"] <= 1


TWO_INPUTS = """\
model: {path: two.onnx}
data:
  calibration: {loader: "load.py:load"}
  test: {loader: "load.py:load"}
compile: {batch: 2}
output: out
"""

LOADER = """
import numpy as np

def load(split):
    rng = np.random.default_rng(3)
    return {"a": rng.normal(size=(9, 4)), "b": rng.normal(size=(9, 4))}, rng.integers(0, 3, 9)
"""


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Gemm", ["sum", "w"], ["scores"]),
        helper.make_node("Relu", ["sum"], ["relu"]),
    ]
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("a", "b", "relu")}
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 3])
    parameters = [numpy_helper.from_array(weights(4, 3, seed=5), "w")]
    graph = helper.make_graph(nodes, "two", [values["a"], values["b"]], [scores, values["relu"]], parameters)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "two.onnx"
    )
    (tmp_path / "load.py").write_text(LOADER)
    (tmp_path / "config.yaml").write_text(TWO_INPUTS)
    summary = run(tmp_path)
    assert summary is not None
    assert (summary["samples"], summary["bit_exact_samples"]) == (9, 9)
    assert summary["float"]["top1"] is not None
    assert summary["sqnr_db"] > 30


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


def test_progress_is_plain_lines_where_there_is_no_terminal(copy: Path) -> None:
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


CONFIGS = Path(__file__).parents[1] / "configs"


REAL_NETWORKS = {
    "kws_dscnn": (0.97, 64),
    "mlperf_resnet8_cifar10": (0.97, 64),
    "resnet20_cifar10": (0.98, 64),
    "mobilenet_v1_0.25_224": (0.9, 4),
}
"""For each: the least agreement with float, and how many samples are compared with NumPy bit for bit."""


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL_NETWORKS)
def test_real_networks_lose_at_most_a_point(
    name: str, data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agreement, compared = REAL_NETWORKS[name]
    monkeypatch.setenv("MRT_DATA", str(data_folder))
    config = load_config(CONFIGS / f"{name}.yaml", [f"evaluate.check={compared}"])
    summary = run_pipeline(config, output=tmp_path, report=silent())
    assert summary is not None
    assert summary["bit_exact_samples"] == compared
    assert summary["max_bits"] <= 32
    assert summary["float"]["top1"] - summary["integer"]["top1"] <= 0.01
    assert summary["agreement"] > agreement
    mrt.verify(tmp_path)


def test_sequential_bias_correction_runs_on_the_calibration_data(copy: Path, finished: Path) -> None:
    """From saved stages it gives the model that the Python API gives, whose logits have the float means."""
    run(copy, first="calibrate", last="calibrate")
    run(copy, "quantize.bias_correction=sequential", "quantize.weight.bits=4", first="quantize", last="quantize")
    with np.load(finished / "data.npz") as data:
        x = data["x"][:20]
    graph = mrt.load_model(copy / "net.onnx")
    config = mrt.QuantizationConfig(bias_correction="sequential", weight={"bits": 4})
    model = mrt.quantize(graph, [x], config, mrt.CalibrationConfig(batch_size=8))
    saved = mrt.load(copy / "out")
    assert saved.digest == model.digest and set(saved.corrections) == set(model.corrections) != set()
    session = onnxruntime.InferenceSession(copy / "net.onnx")
    logits = np.log(np.concatenate([session.run(None, {"x": sample[None]})[0] for sample in x]))
    worst = {}
    for mode, each in (
        ("sequential", saved),
        ("none", mrt.quantize(graph, [x], config.model_copy(update={"bias_correction": "none"}))),
    ):
        integers = [each.graph.evaluate(each.quantize_inputs(sample[None]))[0] for sample in x]
        shift = (each.dequantize_outputs([np.concatenate(integers)])[0] - logits).mean(axis=0)
        worst[mode] = np.ptp(shift)  # a softmax leaves open what is added to all logits
    assert worst["sequential"] < 0.01 and worst["none"] > 0.05


def test_sequential_bias_correction_needs_calibration_data(copy: Path) -> None:
    with pytest.raises(ConfigError, match="stage quantize needs it for bias_correction: sequential"):
        run(copy, "quantize.bias_correction=sequential", "data.calibration=null", first="quantize")


def test_thresholds_of_an_earlier_format_are_refused(copy: Path) -> None:
    run(copy, first="calibrate", last="calibrate")
    thresholds, record = (copy / "out" / "stages" / name for name in ("calibrate/thresholds.json", "calibrate.json"))
    facts = json.loads(thresholds.read_text())
    thresholds.write_text(json.dumps({"format_version": 1, "thresholds": facts["thresholds"]}))
    done = json.loads(record.read_text())
    done["files"]["stages/calibrate/thresholds.json"] = hashlib.sha256(thresholds.read_bytes()).hexdigest()
    record.write_text(json.dumps(done))
    with pytest.raises(ConfigError, match="format_version is 1, 3 is needed.*--from calibrate"):
        run(copy, first="quantize")


def save_quantized_network(path: Path) -> None:
    """A dense layer between ONNX's quantizers; the weight is dequantized."""
    integers = np.random.default_rng(1).integers(-127, 128, (72, 5)).astype(np.int8)
    parameters = {
        "s": np.float32(0.02),
        "z": np.uint8(128),
        "w": integers,
        "sw": np.full(5, 0.01, np.float32),
        "zw": np.zeros(5, np.int8),
        "sy": np.float32(0.2),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xr"]),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["wr"], axis=1),
        helper.make_node("Flatten", ["xr"], ["flat"]),
        helper.make_node("MatMul", ["flat", "wr"], ["product"]),
        helper.make_node("QuantizeLinear", ["product", "sy", "z"], ["yq"]),
        helper.make_node("DequantizeLinear", ["yq", "sy", "z"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "quantized",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in parameters.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_a_network_that_is_quantized_runs_without_calibration_data(tmp_path: Path) -> None:
    """Its integers are those of ONNX Runtime, but where the sum lies half-way between two of them."""
    save_quantized_network(tmp_path / "net.onnx")
    save_data(tmp_path / "data.npz")
    (tmp_path / "config.yaml").write_text(CONFIG)
    summary = run(tmp_path, "data.calibration=null", "quantize.tune_ranges=true")
    assert summary is not None and summary["integer_only"] and summary["bit_exact_samples"] == 5
    x = np.load(tmp_path / "data.npz")["x"]
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    wanted = np.concatenate([session.run(None, {"x": sample[None]})[0] for sample in x])
    found = np.asarray(mrt.load_module(tmp_path / "out" / "model.so")(x))
    steps = np.abs(found - wanted) / 0.2
    assert steps.max() < 1.001 and np.mean(steps > 0.5) < 0.02
    with pytest.raises(ConfigError, match="data.calibration is missing; stage quantize needs it"):
        run(tmp_path, "data.calibration=null", "quantize.bias_correction=fast")


def test_tuned_ranges_are_noted_by_the_run_and_in_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = GraphBuilder()
    data = builder.input("x", TensorType((1, 2, 6, 6)))
    names = ("input_low", "input_high", "output_low", "output_high")
    limits = [builder.parameter(n, np.float32(v)) for n, v in zip(names, (-1.0, 1.63) * 2, strict=True)]
    graph = builder.graph([builder.apply(FakeQuantize(levels=256), [data, *limits], "y")])
    written = StringIO()
    monkeypatch.setattr(pipeline, "load_model", lambda *_, **__: graph)
    (tmp_path / "config.yaml").write_text(CONFIG)
    config = config_of(tmp_path, "data={}", "quantize.tune_ranges=true")
    run_pipeline(config, last="quantize", report=Reporter(Console(file=written, width=500)))
    (note,) = mrt.load(tmp_path / "out").notes
    assert note.startswith("y (FakeQuantize): tuned to an integer zero point: input [-1, 1.63] became [")
    assert f"quantize: {note}" in written.getvalue()
