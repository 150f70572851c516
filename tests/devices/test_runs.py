"""Runs and searches with a device: what it computes and how long it takes is what counts, and a wrong one is said."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import pytest
from tvm.target import codegen
from typer.testing import CliRunner

import mrt
from mrt.backend.devices import target_on
from mrt.cli import app
from mrt.config import load_config
from mrt.errors import ConfigError, DeviceError
from mrt.pipeline import run_pipeline
from mrt.progress import silent
from mrt.runtime.device import Cpu, LocalDevice
from mrt.runtime.rpc.device import RpcDevice
from mrt.symbol import NumpyRunner
from tests.devices.conftest import Servers
from tests.search.networks import save_run


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run's configuration, whose float networks run by NumPy, which needs no compiling."""
    for module in ("mrt.search.laboratory", "mrt.steps"):
        monkeypatch.setattr(f"{module}.default_runner", NumpyRunner)
    monkeypatch.setattr("mrt.model_evaluation.TvmRunner", NumpyRunner)
    return save_run(tmp_path)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The devices that modules were loaded on by RPC."""
    found, load = [], RpcDevice.load

    def noted(self: RpcDevice, library: Any) -> Any:
        found.append(self.name)
        return load(self, library)

    monkeypatch.setattr(RpcDevice, "load", noted)
    return found


def test_a_run_is_evaluated_on_the_device_and_anew_here(config: Path, servers: Servers, loads: list[str]) -> None:
    """The stage itself compares the integers of all samples with `Graph.evaluate`."""
    settings = load_config(config, ["report=false", "evaluate.check=20", f"device={servers.board.address}"])
    summary = run_pipeline(settings, report=silent())
    assert summary is not None and summary["bit_exact_samples"] == 20
    assert loads == [servers.board.address]
    target = json.loads((config.parent / "out" / "model.so.json").read_text())["made_from"]["target"]
    assert target["mcpu"] == codegen.llvm_get_system_cpu()  # the device is this machine
    run_pipeline(settings, report=silent())
    assert len(loads) == 1, "taken as saved"
    here = run_pipeline(load_config(config, ["report=false", "evaluate.check=20"]), report=silent())
    assert here is not None and {**here, "seconds": 0} == {**summary, "seconds": 0}
    assert len(loads) == 1


def test_the_latency_that_is_least_is_the_devices(config: Path, servers: Servers, loads: list[str]) -> None:
    tuned = mrt.tune(
        load_config(config, [f"device={servers.board.address}"]),
        metric="sqnr",
        least=1.0,
        seconds=0,
        objective="latency",
    )
    result = tuned.best.result
    assert loads == [servers.board.address]
    assert 0 < result.cost.measured == result.milliseconds < 1000
    assert f"device: {servers.board.address}" in tuned.configuration.read_text()


def test_a_device_that_is_not_there_ends_the_command_in_a_line(config: Path) -> None:
    found = CliRunner().invoke(app, ["run", str(config), "--device", "rpc://127.0.0.1:1/key"])
    assert found.exit_code == 1
    assert "rpc://127.0.0.1:1/key: connecting: nobody answers there" in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_what_is_no_device_is_named_with_its_key(config: Path) -> None:
    with pytest.raises(ConfigError, match=r"device.*rpc://host:port, with /key"):
        load_config(config, ["device=board:9090"])


class Far(LocalDevice):
    """A device whose TVM has no LLVM, and whose Linux says `flags` of its CPU."""

    is_here, cpu = False, Cpu("", "")

    def __init__(self, flags: str) -> None:
        self._flags = flags.encode()

    def filled(self, library: bytes, arrays: Any) -> Any:
        path, text, usable, counts = super().filled(library, arrays)
        assert bytes(text[: counts[1]]).startswith(b"processor")
        text[: len(self._flags)] = list(self._flags)
        counts[1] = len(self._flags)
        return [path, text, usable, counts]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names CPUs of x86-64")
def test_a_device_without_llvm_must_be_named_and_have_what_is_named() -> None:
    with pytest.raises(DeviceError, match="its TVM has no LLVM to say which CPU it is; name that by compile.target"):
        target_on(Far("flags : sse2\n"), "native")
    named = {"mcpu": "haswell"}
    flags = "flags : sse2 pni ssse3 sse4_1 sse4_2 avx fma f16c popcnt abm bmi1 bmi2 movbe"
    assert target_on(Far(f"{flags} avx2\n"), named).mcpu == "haswell"
    with pytest.raises(DeviceError, match="code for haswell uses avx2, which the device's CPU lacks"):
        target_on(Far(f"{flags}\n"), named)
