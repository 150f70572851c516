"""The latency benchmark: which figure counts, what the table and the file hold, and what is left out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from loaded import load_benchmark
from small_onnx import save_small_network

latency, samples = load_benchmark("latency"), load_benchmark("network_builder").samples
Case, Candidate, ChildError, Measured, Outcome = (
    latency.Case,
    latency.Candidate,
    latency.ChildError,
    latency.Measured,
    latency.Outcome,
)
CASE = Case("resnet8", 1, 16)
RIGHT, NEAR, FAR = np.array([[1.0, 0.0]]), np.array([[1.0, 0.1]]), np.array([[0.1, 1.0]])


def candidate(name: str) -> object:
    engine, _, variant = name.partition(" ")
    return Candidate(engine, "", lambda *_: {}, (), variant.strip("()"))


def outcome(
    found: dict[str, tuple[float, np.ndarray]],
    failed: dict[str, Exception] | None = None,
    calls: Sequence[float] = (1.0, 1.0, 1.0),
) -> object:
    """Of candidates by name, with milliseconds and outputs. calls: how many times as long each took."""
    names = [candidate(name) for name in (*found, *(failed or {}))]
    measured = {name: Measured([ms / 1e3 * each for each in calls], y) for name, (ms, y) in found.items()}
    return Outcome.of(CASE, names, measured, failed or {})


FULL = {
    "mrt-f32": (4.0, RIGHT),
    "mrt-int8": (1.0, NEAR),
    "ort-f32": (5.0, RIGHT),
    "ort-int8": (2.0, NEAR),
    "openvino-f32": (4.5, RIGHT),
    "openvino-int8 (NNCF)": (3.0, NEAR),
    "openvino-int8 (QDQ)": (1.25, NEAR),
}


def test_the_better_of_two_counts_and_the_other_is_told() -> None:
    found = outcome(FULL)
    assert found.best["openvino-int8"].milliseconds == pytest.approx(1.25)
    assert list(found.notes) == [
        "resnet8, 1 thread, batch 16: openvino-int8 (QDQ) counts, openvino-int8 (NNCF) takes 3.00 ms"
    ]
    assert found.failed == ()


def test_the_table_has_a_column_for_each_engine_and_ratio() -> None:
    report = latency.Report([engine for family in latency.ENGINES.values() for engine in family])
    cells = dict(
        zip(
            *(line.strip("| ").split(" | ") for line in (report.heading().splitlines()[0], report.line(outcome(FULL)))),
            strict=True,
        )
    )
    assert cells == {
        **{"model": "resnet8", "threads": "1", "batch": "16"},
        **{"mrt-f32": "4.00", "mrt-int8": "1.00", "ort-f32": "5.00", "ort-int8": "2.00"},
        **{"openvino-f32": "4.50", "openvino-int8": "1.25"},
        **{"mrt-int8 / openvino-int8": "0.80", "mrt-int8 / ort-int8": "0.50", "mrt-int8 / ort-f32": "0.20"},
        **{"mrt-f32 / openvino-f32": "0.89", "mrt-f32 / ort-f32": "0.80"},
        **{f"cosine {engine}": "0.9950" for engine in ("mrt-int8", "ort-int8", "openvino-int8")},
    }


def test_engines_that_are_not_measured_have_no_column_and_those_that_failed_no_figure() -> None:
    report = latency.Report(["mrt-f32", "mrt-int8", "ort-f32", "ort-int8"])
    found = outcome(
        {"mrt-f32": (4.0, RIGHT), "ort-f32": (5.0, RIGHT), "ort-int8": (2.0, NEAR)},
        {"mrt-int8": ChildError("too wide")},
    )
    assert "openvino" not in report.heading()
    assert report.line(found) == "| resnet8 | 1 | 16 | 4.00 | - | 5.00 | 2.00 | - | - | 0.80 | - | 0.9950 |"
    assert found.failed == ("resnet8, 1 thread, batch 16: mrt-int8: too wide",)


def test_the_file_holds_exactly_the_rows() -> None:
    report = latency.Report(["ort-f32", "ort-int8"], [outcome({"ort-int8": (2.0, NEAR), "ort-f32": (5.0, RIGHT)})])
    shared = {"model": "resnet8", "threads": 1, "batch": 16, "runs": 3}
    assert json.loads(report.to_json()) == {
        "rows": [
            {**shared, "engine": "ort-f32", "median_ms": 5.0, "tenth_ms": 5.0, "nine_tenths_ms": 5.0},
            {**shared, "engine": "ort-int8", "median_ms": 2.0, "tenth_ms": 2.0, "nine_tenths_ms": 2.0},
        ]
    }


def test_what_a_tenth_and_nine_tenths_of_the_calls_took_is_told_in_the_tables_order() -> None:
    found = outcome({"ort-int8": (2.0, NEAR), "ort-f32": (5.0, RIGHT)}, calls=(0.5, 1.0, 1.5)).tenths()
    assert found == [
        "resnet8, 1 thread, batch 16: a tenth of the calls took at most, in ms, ort-f32 3.00, ort-int8 1.20",
        "resnet8, 1 thread, batch 16: nine tenths of the calls took at most, in ms, ort-f32 7.00, ort-int8 2.80",
    ]


def test_a_float_engine_that_computes_something_else_has_failed() -> None:
    found = outcome({"mrt-f32": (4.0, FAR), "ort-f32": (5.0, RIGHT), "mrt-int8": (1.0, FAR)})
    (failed,), (note,) = found.failed, found.notes
    assert "mrt-f32 have a cosine of 0.0995" in failed and "below 0.999" in failed
    assert "mrt-int8 have a cosine of 0.0995" in note and "below 0.9" in note
    (failed,) = outcome({"ort-f32": (5.0, RIGHT), "mrt-f32": (4.0, np.full((1, 2), np.nan))}).failed
    assert "mrt-f32 have a cosine of nan" in failed


@pytest.mark.parametrize(
    ("arguments", "found", "needed"),
    [
        (["--models", "resnet50,resnet51"], "resnet51", "mobilenetv2"),
        (["--models", ""], "''", "resnet50"),
        (["--engines", "tvm"], "tvm", "mrt, ort, openvino"),
        (["--threads", "0"], "'0'", "from 1 on"),
        (["--batch", "1,x"], "'x'", "from 1 on"),
        (["--batch", "²"], "'²'", "from 1 on"),
        (["--rounds", "-1"], "'-1'", "from 1 on"),
        (["--seconds", "nan"], "'nan'", "above 0"),
        (["--seconds", "inf"], "'inf'", "above 0"),
        (["--isa", "amx"], "amx", "native, vnni, avx2"),
        (["--json", "/no/such/folder/out.json"], "/no/such/folder/out.json", "folder that exists"),
        (["--work", __file__], __file__, "a folder"),
    ],
)
def test_a_wrong_value_is_one_line(
    arguments: list[str], found: str, needed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        latency._parser().parse_args([f"{arguments[0]}={arguments[1]}"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert arguments[0] in line and found in line and needed in line and line.endswith("is needed")


def test_a_preset_quantizes_for_ours_alone() -> None:
    asked: list[tuple[str, dict]] = []
    store = SimpleNamespace(get=lambda maker, **what: asked.append((maker, what)) or Path(maker))
    for each in latency.candidates_by("best"):
        each.arguments(store, Path("net"), CASE, "native")
    assert [maker for maker, what in asked if what.get("options") == {"preset": "best"}] == ["mrt-model"]
    assert latency._parser().parse_args([]).preset == "mrt"


def test_by_default_everything_is_measured() -> None:
    given = latency._parser().parse_args([])
    assert given.models == list(latency.MODELS) and given.engines == ["mrt", "ort", "openvino"]
    assert (given.threads, given.batch, given.isa) == ([1, 2], [1, 16], "native")
    assert latency._parser().parse_args(["--threads", "2,1,2"]).threads == [2, 1]


def run_without(absent: set[str], arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit status where modules are absent and all engines take as long."""
    monkeypatch.setattr(latency, "find_spec", lambda name: None if name in absent else object())
    monkeypatch.setattr(
        latency, "measure", lambda launches, *_: ({name: Measured([0.001], RIGHT) for name in launches}, {})
    )
    monkeypatch.setattr(latency, "making_times", lambda *_: [])
    given = latency._parser().parse_args(["--models", "resnet8", "--threads", "1", "--batch", "1", *arguments])
    status: int = latency.measure_all(given, latency.Store(tmp_path))
    return status


def test_an_engine_whose_package_is_missing_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    assert run_without({"onnxruntime", "nncf"}, ["--json", str(file)], tmp_path, monkeypatch) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if "left out" in line]
    assert said == [
        "ort-f32: left out, onnxruntime not installed",
        "ort-int8: left out, onnxruntime not installed",
        "openvino-int8 (NNCF): left out, nncf not installed",
        "openvino-int8 (QDQ): left out, onnxruntime not installed",
    ]
    assert [line["engine"] for line in json.loads(file.read_text())["rows"]] == ["mrt-f32", "mrt-int8", "openvino-f32"]


def test_without_any_engine_there_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_without({"openvino"}, ["--engines", "openvino"], tmp_path, monkeypatch) == 1
    assert capsys.readouterr().err == "no engine is left; install the extra [benchmarks]\n"


def saved(path: Path, inputs: dict[str, tuple[int, list[int | str]]]) -> Path:
    """A file of a network that adds up its inputs, given their element types and shapes."""
    given = [onnx.helper.make_tensor_value_info(name, *facts) for name, facts in inputs.items()]
    made = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph([onnx.helper.make_node("Sum", list(inputs), ["y"])], "sum", given, [made])
    onnx.save(onnx.helper.make_model(graph), path)
    return path


def test_a_file_is_a_network_with_samples_of_noise(tmp_path: Path) -> None:
    file = saved(tmp_path / "own.onnx", {"a": (onnx.TensorProto.FLOAT, ["N", 3, 5])})
    store = latency.Store(tmp_path / "work")
    (name,) = latency._parser().parse_args(["--models", str(file)]).models
    folder = latency.network_of(store, name)
    with np.load(folder / "calibration.npz") as samples:
        assert samples["a"].shape == (32, 3, 5)
    assert latency.network_of(store, name) == folder
    saved(file, {"b": (onnx.TensorProto.FLOAT, ["N", 4, 5])})
    assert latency.network_of(store, name) != folder


def test_samples_of_one_axis_and_long_ones_are_noise() -> None:
    assert samples((784,), 3, 0).shape == (3, 784)
    long = samples((1, 2**17), 2, 0)
    assert long.shape == (2, 1, 2**17) and abs(long.std() - 1) < 0.2


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"a": (onnx.TensorProto.INT64, ["N", 3, 5])}, "a: elements of type INT64 were found; FLOAT is needed"),
        ({"a": (onnx.TensorProto.FLOAT, ["N", 3, "M"])}, r"a: a sample of shape \[3, 0\] was found"),
        ({"a": (1, ["N", 3, 5]), "b": (1, ["N", 3, 5])}, "inputs a, b were found; one is needed"),
    ],
)
def test_a_network_that_noise_does_not_suit_is_refused(
    inputs: dict[str, tuple[int, list[int | str]]], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ChildError, match=said):
        latency.network_of(latency.Store(tmp_path / "work"), str(saved(tmp_path / "own.onnx", inputs)))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_small_network_is_measured_and_the_next_run_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the next run starts is what the first one made; it need not be measured once more."""
    pytest.importorskip("onnxruntime")
    network, file, work = str(save_small_network(tmp_path / "small.onnx")), tmp_path / "out.json", tmp_path / "work"
    options = ["--models", network, "--engines", "mrt,ort", "--threads", "1", "--batch", "3", "--isa", "vnni"]
    options += ["--rounds", "2", "--seconds", "0.01", "--json", str(file), "--work", str(work)]
    monkeypatch.setattr(sys, "argv", ["latency.py", *options])
    with pytest.raises(SystemExit) as ended:
        latency.main()
    told = capsys.readouterr()
    assert (ended.value.code, told.err) == (0, "")
    made = {path: path.stat().st_mtime_ns for path in work.rglob("*")}
    kinds = {path.name.rpartition("-")[0] for path in work.iterdir()}
    assert kinds == {"own-network", "mrt-model", "mrt-module", "ort-int8"}
    rows = json.loads(file.read_text())["rows"]
    assert [line["engine"] for line in rows] == ["mrt-f32", "mrt-int8", "ort-f32", "ort-int8"]
    assert all(line["model"] == network and (line["threads"], line["batch"]) == (1, 3) for line in rows)
    assert all(line["median_ms"] > 0 and line["runs"] >= 6 for line in rows)
    (line,) = [line for line in told.out.splitlines() if line.startswith(f"| {network}")]
    own, peer = (float(cell) for cell in line.strip("| ").split(" | ")[-2:])
    # ONNX Runtime's products saturate where a processor has no VNNI.
    assert own > 0.98 and peer > 0.85

    started: dict[str, object] = {}

    def launched(launches: dict[str, Callable[[], object]], *_: object) -> tuple[dict[str, object], dict[str, object]]:
        started.update({name: launch() for name, launch in launches.items()})
        return {name: Measured([0.001], RIGHT) for name in launches}, {}

    monkeypatch.setattr(latency, "measure", launched)
    assert latency.measure_all(latency._parser().parse_args(options), latency.Store(work)) == 0
    assert list(started) == ["mrt-f32", "mrt-int8", "ort-f32", "ort-int8"]
    assert {path: path.stat().st_mtime_ns for path in work.rglob("*")} == made
