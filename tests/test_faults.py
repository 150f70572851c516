"""Faults at every change that a run makes in its folder: afterwards it holds the former result, or the new one."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mrt
from mrt import model_evaluation, steps
from mrt.errors import MRTError
from mrt.model import QuantizedModel
from mrt.pipeline import run_pipeline
from mrt.result_folder import FINISHED, REMOVED, current
from tests.faults import Killed, failing, file_size_limit, full_disk
from tests.pipeline.runs import QUICK, config_of, save_data, save_network, silent

FORMER, NEW = (), ("calibrate.method=mse", "quantize.activation.bits=5", "evaluate.samples=9")
"""What a first and a second run set."""
ALL = os.environ.get("MRT_FAULTS") == "all"
"""Whether every change fails once, by every fault; else so many of them do, others by each fault."""
SAMPLE = 4
FAULTS = {"full disk": errno.ENOSPC, "no permission": errno.EACCES, "killed": None}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A network, data and a configuration; what takes long is computed once for each thing that is asked for."""
    folder = tmp_path_factory.mktemp("faults")
    save_network(folder / "net.onnx")
    save_data(folder / "data.npz")
    (folder / "config.yaml").write_text(QUICK)
    compiled, known = QuantizedModel.compile, folder / "compiled"
    known.mkdir()

    def compile_once(model: QuantizedModel, *given: Any) -> mrt.Module:
        path = known / f"{model.digest}.so"
        if not path.exists():
            compiled(model, *given).save(path)
        return mrt.load_module(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(QuantizedModel, "compile", compile_once)
        patch.setattr(steps, "calibrate", once(steps.calibrate, lambda *given: repr(given[3])))
        patch.setattr(
            model_evaluation,
            "_check_samples",
            once(model_evaluation._check_samples, lambda networks, *given: networks.model.digest),
        )
        patch.setattr(
            model_evaluation,
            "_compared",
            once(model_evaluation._compared, lambda networks, *given: networks.model.digest),
        )
        for name, options in (("former", FORMER), ("new", NEW)):
            begin(folder, folder / name, options)
        yield folder


def once(function: Callable[..., Any], key: Callable[..., str]) -> Callable[..., Any]:
    """`function`, whose result is kept by the key of what it is given."""
    known: dict[str, Any] = {}

    def called(*given: Any) -> Any:
        name = key(*given)
        if name not in known:
            known[name] = function(*given)
        return known[name]

    return called


def begin(project: Path, output: Path, overrides: Sequence[str] = NEW, **options: Any) -> None:
    run_pipeline(config_of(project, *overrides), output=output, report=silent(), **options)


def held(folder: Path) -> dict[str, Any]:
    """What a folder shows to readers, without what stages took."""
    names = {name for name in files_in(folder) if not name.startswith(".")} | files_in(folder / FINISHED) - {REMOVED}
    paths = {name: current(folder, name) for name in sorted(names)}
    shown: dict[str, Any] = {name: path.read_bytes() for name, path in paths.items() if path.is_file()}
    for name in [name for name in shown if name == "summary.json" or Path(name).parent.name == "stages"]:
        shown[name] = {key: value for key, value in json.loads(shown[name]).items() if key != "seconds"}
    if "stages/evaluate.json" in shown:
        del shown["stages/evaluate.json"]["files"]["summary.json"]
    return shown


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def check_model(folder: Path) -> None:
    """Verifies a folder, and that its module, if it has one, gives the integers of its graph."""
    assert mrt.verify(folder).max_bits <= 32
    if not current(folder, "model.so").exists():
        return
    model, module = mrt.load(folder), mrt.load_module(folder / "model.so")
    assert module.digest == model.digest
    integers = model.quantize_inputs(np.linspace(-2, 2, 72, dtype=np.float32).reshape(1, 2, 6, 6))
    np.testing.assert_array_equal(module.run_integer(integers), *model.graph.evaluate(integers))


def fresh(folder: Path, source: Path | None) -> Path:
    """`folder` as a copy of another one, or missing."""
    shutil.rmtree(folder, ignore_errors=True)
    if source is not None:
        shutil.copytree(source, folder)
    return folder


def points(changes: int, fault: str) -> list[int]:
    """Which changes are to fail, counted from 1: together the faults go from the first to the last."""
    if ALL:
        return list(range(1, changes + 1))
    places = np.linspace(1, changes, SAMPLE * len(FAULTS))[list(FAULTS).index(fault) :: len(FAULTS)]
    return sorted({int(place) for place in places})


@dataclass(frozen=True)
class Sound:
    """A run without faults: what its folder holds before and afterwards, and how many changes it makes there."""

    source: Path | None
    overrides: Sequence[str]
    options: dict[str, str]
    before: dict[str, Any]
    after: dict[str, Any]
    changes: int


RUNS = {
    "anew": ("former", {}),
    "up to quantize": ("former", {"last": "quantize"}),
    "by force": ("former", {"first": "compile"}),
    "first run": (None, {}),
}
"""The folder that a run begins with, and its options."""


@pytest.fixture(scope="module", params=RUNS)
def sound(project: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Sound:
    start, options = RUNS[request.param]
    overrides = FORMER if "first" in options else NEW
    source, out = None if start is None else project / start, tmp_path_factory.mktemp("sound") / "out"
    begin(project, fresh(out, source), overrides, **options)
    after = held(out)
    with failing(fresh(out, source)) as watch:
        begin(project, out, overrides, **options)
    assert watch.count > 20 and held(out) == after
    return Sound(source, overrides, options, {} if source is None else held(source), after, watch.count)


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_leaves_the_former_result_or_the_new_one(
    project: Path, sound: Sound, tmp_path: Path, fault: str
) -> None:
    for turn, point in enumerate(points(sound.changes, fault)):
        out = fresh(tmp_path / "out", sound.source)
        failure: BaseException | None = None
        with failing(out, point, FAULTS[fault]):
            try:
                begin(project, out, sound.overrides, **sound.options)
            except (Killed, MRTError) as error:
                failure = error
        assert isinstance(failure, Killed) or fault != "killed"
        if turn % 2 and out.exists():
            assert held(out) in (sound.before, sound.after), f"change {point} of {sound.changes}, {failure}"
            if held(out):
                check_model(out)
        begin(project, out, sound.overrides, **sound.options)
        assert held(out) == sound.after, f"change {point} of {sound.changes}, {failure}"
        assert [path.name for path in out.iterdir() if path.name.startswith(".")] == []


def attempt(project: Path, out: Path, limit: int | None = None) -> MRTError | None:
    """A run that may fail, of whose files none may be half there."""
    before, after = held(project / "former"), held(project / "new")
    failure = None
    try:
        with contextlib.nullcontext() if limit is None else file_size_limit(limit):
            begin(project, out)
    except MRTError as error:
        failure = error
        assert str(error).count("\n") == 0
    assert held(out) == (after if failure is None else before), failure
    check_model(out)
    return failure


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_anew")
def test_a_limit_on_the_size_of_files_leaves_the_former_result(project: Path, tmp_path: Path) -> None:
    """Without kernels of the cache, which a linker would have to write too."""
    sizes = [1, 500, 2_000, 8_000, 20_000]
    for size in sizes:
        out = fresh(tmp_path / "out", project / "former")
        failure = attempt(project, out, size)
        assert failure is not None and "File too large" in str(failure)
        assert attempt(project, out) is None


@pytest.mark.slow
def test_a_full_disk_leaves_the_former_result(project: Path, tmp_path: Path) -> None:
    """With less and less room beside it; enough of it in the end."""
    failures = 0
    for room in (0, 8, 24, 64, 128, 1024):
        with full_disk(tmp_path / "disk", 2**21) as disk:
            out = fresh(disk / "out", project / "former")
            with (disk / "other").open("wb") as other:
                free = os.statvfs(disk)
                os.posix_fallocate(other.fileno(), 0, free.f_bavail * free.f_bsize - room * 1024)
            failure = attempt(project, out)
            assert failure is None or "No space left" in str(failure)
            failures += failure is not None
            (disk / "other").unlink()
            assert attempt(project, out) is None
    assert 2 <= failures < 6


RUN = """
import sys
from pathlib import Path
from mrt.config import load_config
from mrt.pipeline import run_pipeline
run_pipeline(load_config(Path(sys.argv[1]), sys.argv[3:]), output=Path(sys.argv[2]))
"""


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("line", ["calibrate: done", "compile: done", "evaluate: done"])
def test_a_process_that_is_killed_leaves_the_former_result_or_the_new_one(
    project: Path, tmp_path: Path, line: str
) -> None:
    """Once it has said something; behind the last stage files are put in place."""
    out = fresh(tmp_path / "out", project / "former")
    command = [sys.executable, "-u", "-c", RUN, str(project / "config.yaml"), str(out), *NEW]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        assert any(told.startswith(line) for told in child.stdout)
        child.kill()
    assert held(out) in (held(project / "former"), held(project / "new"))
    check_model(out)
    begin(project, out)
    assert held(out) == held(project / "new")
    assert [path.name for path in out.iterdir() if path.name.startswith(".")] == []
