"""Runs whose work is done by processes: the same files; interrupted or without a scheduler they end in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from mrt.errors import ClusterError, ConfigError
from tests.pipeline.runs import CONFIG, config_of, contents, run, save_data, save_network
from tests.structure import ROOT

pytest.importorskip("distributed", reason="Dask is not installed")

pytestmark = pytest.mark.usefixtures("compiled_anew")

SEQUENTIAL = "quantize.bias_correction=sequential"
TIMED = ("summary.json", "stages/calibrate.json", "stages/quantize.json", "stages/compile.json", "stages/evaluate.json")


Run = tuple[Path, dict[str, bytes]]
"""A folder of runs, and the files of one of them."""


def filled(folder: Path) -> Path:
    """With a network, data and a configuration; all batches of the data are of one size, as which it is compiled."""
    save_network(folder / "net.onnx")
    save_data(folder / "data.npz")
    (folder / "config.yaml").write_text(CONFIG.replace("[0, 20]", "[0, 24]").replace("[20, 47]", "[23, 47]"))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return filled(tmp_path)


@pytest.fixture(scope="module")
def by_threads(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """By threads."""
    folder = filled(tmp_path_factory.mktemp("runs"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRT_CACHE", "off")
        return folder, made(folder, "here")


def made(folder: Path, output: str, *overrides: str) -> dict[str, bytes]:
    """The files of a run, but for the times that it took."""
    run(folder, SEQUENTIAL, *overrides, output=folder / output)
    found = contents(folder / output)
    summary = json.loads(found.pop("summary.json"))
    timeless = {name: content for name, content in found.items() if not name.startswith("stages/") or "/" in name[7:]}
    return timeless | {"summary": json.dumps({**summary, "seconds": 0}).encode()}


@pytest.mark.slow
def test_a_run_of_processes_leaves_the_files_that_one_of_threads_leaves(by_threads: Run) -> None:
    folder, here = by_threads
    there = made(folder, "there", "cluster={processes: 2}")
    assert here == there and {"model.so", "summary"} <= set(here)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "either address or processes is needed"),
        ("{address: tcp://a:1, processes: 2}", "either address or processes is needed"),
        ("{address: 10.0.0.1:8786}", "the address of a Dask scheduler is needed, such as tls://10.0.0.1:8786"),
        ("{processes: 0}", "greater than or equal to 1"),
    ],
)
def test_a_wrong_section_is_an_error(folder: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config_of(folder, f"cluster={text}")


SCHEDULER = """
from distributed import LocalCluster
import sys
import time

if __name__ == "__main__":
    options = {"dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", **options) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A scheduler with one worker in another process, and its address."""
    (tmp_path / "scheduler.py").write_text(SCHEDULER)
    command = [sys.executable, str(tmp_path / "scheduler.py")]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes) as process:
        children = psutil.Process(process.pid)
        address = process.stdout.readline().strip()
        workers = children.children(recursive=True)
        yield process, address
        process.kill()
        for worker in workers:
            if worker.is_running():
                worker.kill()


@pytest.mark.slow
def test_a_run_whose_scheduler_is_lost_is_resumed(
    by_threads: Run, scheduler: tuple[subprocess.Popen[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder, wanted), (process, address) = by_threads, scheduler
    from mrt.quantization.algorithms import sequential_bias_correction

    def lose_scheduler(*given: object) -> object:
        for each in psutil.Process(process.pid).children(recursive=True):
            each.kill()
        process.kill()
        return correct(*given)

    correct = sequential_bias_correction.sequential_corrections
    with monkeypatch.context() as patch, pytest.raises(ClusterError, match="are lost .* run the same once more"):
        patch.setattr(sequential_bias_correction, "sequential_corrections", lose_scheduler)
        run(folder, SEQUENTIAL, f"cluster={{address: '{address}'}}", output=folder / "lost")
    assert not (folder / "lost" / "model.so").exists()
    assert made(folder, "lost") == wanted


LOADER = """
import os, time
from pathlib import Path
import numpy as np

def calibration():
    folder = Path(__file__).parent
    if (folder / "parent").read_text() != str(os.getpid()):
        (folder / f"worker {os.getpid()}").touch()
        time.sleep(300)
    return np.ones((40, 2, 6, 6), np.float32)
"""
RUN = """
import os, signal
from pathlib import Path

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have what runs in the background ignore it
    Path("parent").write_text(str(os.getpid()))
    from mrt.cli import main
    main()
"""


@pytest.mark.slow
def test_an_interrupted_run_ends_and_leaves_no_process(folder: Path) -> None:
    (folder / "loader.py").write_text(LOADER)
    (folder / "run.py").write_text(RUN)
    command = [sys.executable, "run.py", "run", "config.yaml", "--cluster", "2"]
    command += ["--set", "data={calibration: {loader: loader.py:calibration}}", "--to", "calibrate"]
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1"}
    with subprocess.Popen(command, text=True, cwd=folder, env=environment, **options) as process:
        try:
            while process.poll() is None and not list(folder.glob("worker *")):
                time.sleep(0.1)
            children = psutil.Process(process.pid).children(recursive=True)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            _, said = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # it says where it hangs
            pytest.fail(f"the run goes on: {process.communicate()[1]}")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, said
    assert said.splitlines() == ["interrupted; finished and kept for the next run: prepare"]
    psutil.wait_procs(children, timeout=10)
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
