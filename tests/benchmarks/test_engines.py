"""The engines benchmark: what it calls the same, what it reports, and the embedded example on every engine."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from loaded import BENCHMARKS, load_benchmark

from mrt.errors import GraphError, MRTError

engines = load_benchmark("engines")
Outcome = engines.Outcome
SAME, OTHER = Outcome(digest="a" * 64), Outcome(digest="b" * 64)
FAILED, ABSENT = Outcome(error="out of memory"), Outcome(absent="this machine lacks avx2")


@pytest.mark.parametrize(
    ("outcomes", "same"),
    [
        ([SAME, SAME, SAME], True),
        ([SAME, ABSENT, SAME], True),
        ([SAME, OTHER, SAME], False),
        ([SAME, FAILED, SAME], False),
        ([FAILED, FAILED], False),
        ([FAILED, SAME, SAME], False),
        ([SAME, ABSENT], False),  # nothing to compare with
        ([ABSENT, ABSENT], False),
    ],
)
def test_only_engines_that_all_gave_one_digest_are_the_same(outcomes: list[object], same: bool) -> None:
    assert engines.are_same(outcomes) is same


def test_cells_show_what_differs() -> None:
    assert engines.cells([SAME, SAME, OTHER, FAILED, ABSENT]) == ["a" * 64, "=", "=", "b" * 8, "failed", "-"]
    assert engines.cells([FAILED, SAME]) == ["-", "failed", "a" * 8]


def test_a_digest_is_of_values_dtypes_shapes_and_order() -> None:
    a, b = np.array([[1, -2], [3, 4]], np.int16), np.array([7], np.uint8)
    written = b"int16 [2, 2]\n\x01\x00\xfe\xff\x03\x00\x04\x00uint8 [1]\n\x07"
    assert engines.digest([a, b]) == hashlib.sha256(written).hexdigest()
    assert engines.digest([np.asfortranarray(a).astype(">i2"), b]) == engines.digest([a, b])
    others = [[b, a], [a.T, b], [a.reshape(4, 1), b], [a.astype(np.int32), b], [a.view(np.uint16), b], [a]]
    assert len({engines.digest(each) for each in [[a, b], *others]}) == 7


def test_samples_are_run_one_by_one_and_kept_in_order() -> None:
    shapes = []

    def run(feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        shapes.append(feeds["x"].shape)
        return [feeds["x"] + 1, feeds["y"].sum(axis=1)]

    x, y = np.arange(12).reshape(3, 2, 2), np.arange(6).reshape(3, 2)
    found = engines.by_sample(run, {"x": x, "y": y})
    assert shapes == [(1, 2, 2)] * 3
    np.testing.assert_array_equal(found[0], x + 1)
    np.testing.assert_array_equal(found[1], [1, 5, 9])


def test_data_of_channels_first_are_arranged_for_the_network() -> None:
    arranged = load_benchmark("engine_networks").arranged
    x = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    assert arranged(x, (3, 4, 5)) is x
    last = arranged(x, (4, 5, 3))
    assert all(last[n, i, j, c] == x[n, c, i, j] for n, c, i, j in np.ndindex(x.shape))
    np.testing.assert_array_equal(arranged(x, (60,)), last.reshape(2, 60))


def test_integers_in_another_dtype_are_taken_only_where_they_are_integers() -> None:
    found = engines.as_integers(np.array([[3.0, -128.0], [0.0, 127.0]]), (1, 2), "int8")
    assert found.dtype == np.int8 and found.tolist() == [[3, -128], [0, 127]]
    assert engines.as_integers(np.array([5.0, 6.0]), (1, 1), "uint8").tolist() == [[5], [6]]
    for wrong in (0.5, 128.0, -129.0):
        with pytest.raises(MRTError, match="float64 values are no int8"):
            engines.as_integers(np.array([[1.0, wrong]]), (1, 2), "int8")


def test_a_cpu_with_features_that_this_one_lacks_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engines.LEVELS, "future", ("sse2", "no-such-feature"))
    assert engines.lacking("future") == "this machine lacks no-such-feature"
    assert engines.lacking(engines.NATIVE) == ""
    assert engines.not_installed("numpy") == "" and "not installed" in engines.not_installed("no_such_module")


def test_networks_are_found_by_format(tmp_path: Path) -> None:
    for name in (
        *("models/onnx/kws_dscnn.onnx", "models/onnx/ad01_fp32.onnx", "models/tflite/kws_ref.tflite"),
        *("mxnet/lenet_toy/lenet_toy-symbol.json", "relay/kwt1/model.relay", "relay/ops/shape_ops/model.relay"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert [(each.name, each.data) for each in engines.networks(tmp_path)] == [
        ("digits", "digits"),
        ("onnx/ad01_fp32", None),
        ("onnx/kws_dscnn", "kws_dscnn"),
        ("tflite/kws_ref", "kws_dscnn"),
        ("mxnet/lenet_toy", "lenet_toy"),
        ("relay/kwt1", "kwt1_speechcommands12"),
    ]
    assert [each.config.is_file() for each in engines.networks(tmp_path)] == [True, False, True, False, False, False]


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Callable[..., bool]:
    """The report of one network, with what each engine gives or with what quantization says."""

    def reported(*outcomes: object, name: str = "net", refused: str = "") -> bool:
        def save_model(*arguments: object) -> None:
            if refused:
                raise GraphError(refused)

        made = [engines.Engine(f"engine {n}", engines.evaluate) for n in range(len(outcomes))]
        monkeypatch.setattr(engines, "ENGINES", made)
        monkeypatch.setattr(engines, "save_model", save_model)
        monkeypatch.setattr(engines, "run_child", lambda place, engine, folder: outcomes[place])
        return bool(engines.report([engines.Network(name, Path(), None)], 4))

    return reported


def test_a_report_ends_in_whether_all_are_equal(
    report: Callable[..., bool], capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(SAME, SAME)
    assert capsys.readouterr().out.splitlines() == [
        "| network | SHA-256 of 4 outputs | engine 0 | engine 1 |",
        "| --- | --- | --- | --- |",
        f"| net | {'a' * 64} | = | = |",
        "",
        "all equal",
    ]
    assert not report(SAME, FAILED)
    assert capsys.readouterr().out.splitlines()[-2:] == ["net, engine 1: out of memory", "NOT all equal"]
    assert not report(SAME, OTHER)


@pytest.mark.parametrize("name", engines.REFUSED)
def test_only_the_networks_that_cannot_be_quantized_may_be_refused(name: str, report: Callable[..., bool]) -> None:
    said = engines.REFUSED[name]
    assert report(SAME, SAME, name=name, refused=f"input: {said} 1")
    assert not report(SAME, SAME, name=name, refused="out of luck")
    assert not report(SAME, SAME, name="relay/other", refused=said)


@pytest.mark.parametrize(
    ("arguments", "needed"), [(["nonet"], "of these is needed: digits"), (["--inputs", "0"], "from 1 on")]
)
def test_wrong_arguments_are_said(
    arguments: list[str], needed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MRT_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", ["engines.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        engines.main()
    assert ended.value.code == 2
    assert needed in capsys.readouterr().err


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_example_is_the_same_on_engines_in_processes_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On one engine of each number of threads beside NumPy; all of them are below."""
    monkeypatch.delenv("MRT_DATA", raising=False)
    monkeypatch.setattr(sys, "argv", ["engines.py", "digits", "--inputs", "4"])
    run = {"NumPy", "ONNX reference", "native, 2 threads"}
    chosen = [
        each if engines.column(each) in run else replace(each, absent=lambda: "not asked for")
        for each in engines.ENGINES
    ]
    monkeypatch.setattr(engines, "ENGINES", chosen)
    with pytest.raises(SystemExit) as ended:
        engines.main()
    told = capsys.readouterr().out
    assert ended.value.code == 0, told
    (found,) = [line.strip("| ").split(" | ") for line in told.splitlines() if line.startswith("| digits")]
    assert len(found) == len(engines.ENGINES) + 2 and len(found[1]) == 64
    assert found[2:] == ["=" if engines.column(each) in run else "-" for each in chosen]
    assert told.splitlines()[-1] == "all equal"


BY_THREADS = """
import sys
from pathlib import Path
import engines
folder, threads = Path(sys.argv[1]), int(sys.argv[2])
for engine in engines.ENGINES:
    if engine.threads == threads and not engine.absent():
        print(engines.run(engine, folder))
"""


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_example_is_the_same_on_every_engine(tmp_path: Path) -> None:
    """By a process for each number of threads."""
    (example,) = engines.networks(None)
    engines.save_model(example, tmp_path, 10)
    digests = []
    for threads in map(str, engines.THREADS):
        variables = {"TVM_NUM_THREADS": threads, "TVM_BIND_THREADS": "0", "OMP_NUM_THREADS": threads}
        places = os.pathsep.join([str(BENCHMARKS), *sys.path])
        command = [sys.executable, "-c", BY_THREADS, tmp_path, threads]
        environment = {**os.environ, **variables, "PYTHONPATH": places}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        digests += done.stdout.split()
    assert len(digests) == sum(not engine.absent() for engine in engines.ENGINES) >= 7
    assert len(set(digests)) == 1 and len(digests[0]) == 64
