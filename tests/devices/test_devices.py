"""A device reached by RPC computes the integers of `evaluate`, and is timed and tuned for by its own clock and CPU."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from mrt.backend.devices import check_fits, target_on
from mrt.backend.machine import Machine, resolved
from mrt.backend.tuning.database import RECORDS
from mrt.backend.tuning.tuner import Tuner
from mrt.compilation import TargetConfig
from mrt.errors import CompilationError, DeviceError
from mrt.progress import Reporter, silent
from mrt.runtime import Linker, Module, load_module
from mrt.runtime.rpc.device import RpcDevice, device_at
from mrt.search.cost import Cost
from tests.devices.conftest import Servers
from tests.devices.network import SAMPLES, compiled, expected

NO_TILES = {"features": ["-amx-int8"]}
"""This machine as a device finds it."""


@pytest.fixture
def module(library: Path, device: RpcDevice) -> Iterator[Module]:
    with_device = load_module(library, device=device)
    yield with_device
    with_device.close()


def test_integers_are_those_of_evaluate_for_any_number_of_samples(module: Module) -> None:
    for count in (1, 2, 5):
        found = module.run_integer(SAMPLES[:count])
        np.testing.assert_array_equal(found, expected()[:count])


def test_real_outputs_are_those_of_this_machine(module: Module, library: Path) -> None:
    x = np.random.default_rng(2).uniform(-2, 130, (3, 4, 6, 6)).astype(np.float32)
    np.testing.assert_array_equal(module(x), load_module(library)(x))


def test_a_tracker_lends_a_server_as_often_as_it_is_asked(servers: Servers, library: Path) -> None:
    if servers.tracker is None:
        pytest.skip("TVM's tracker needs tornado")
    device = device_at(f"rpc://127.0.0.1:{servers.tracker}/{servers.board.key}")
    for _ in range(2):
        module = load_module(library, device=device)
        np.testing.assert_array_equal(module.run_integer(SAMPLES), expected())
        device.close()


def test_native_is_the_cpu_of_the_device(device: RpcDevice) -> None:
    """The device is this machine, whose CPU is known otherwise."""
    found, here = target_on(device, "native"), resolved(NO_TILES)
    assert (found.mcpu, found.mtriple, found.threads) == (here.mcpu, here.mtriple, here.threads)
    assert Machine.of(found).features == Machine.of(NO_TILES).features


def test_what_the_user_says_of_the_cpu_holds(device: RpcDevice) -> None:
    named = TargetConfig(mcpu="x86-64" if "x86" in resolved("native").mtriple else "generic")
    assert target_on(device, named) == named
    assert target_on(device, {"threads": 1, "features": ["-avx2"]}).threads == 1
    assert not Machine.of(target_on(device, {"features": ["-avx2"]})).has("avx2")


@pytest.mark.skipif("x86" not in (resolved("native").mtriple or ""), reason="names CPUs of x86")
@pytest.mark.parametrize(
    ("target", "told"),
    [
        ({"mtriple": "aarch64-linux-gnu"}, "code for aarch64-linux-gnu does not run on x86_64.*compile for the device"),
        ({"mcpu": "diamondrapids"}, "code for diamondrapids uses .*avxvnni.*which the device's CPU lacks"),
    ],
)
def test_code_for_another_cpu_is_refused_before_it_runs(device: RpcDevice, target: dict[str, str], told: str) -> None:
    if Machine.of().has("avxvnni"):
        pytest.skip("this machine has what is to be lacking")
    with pytest.raises(DeviceError, match=told):
        check_fits(device, TargetConfig(**target))


def test_a_library_that_the_loader_refuses_is_one_error(device: RpcDevice, library: Path) -> None:
    content = bytearray(library.read_bytes())
    content[18] = 183  # the header's machine: aarch64
    with pytest.raises(DeviceError, match="loading code for aarch64: "):
        device.filled(bytes(content), [])
    assert not device._open


def test_time_is_that_of_the_device_without_the_network(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that takes ever longer on its way takes no longer there."""
    sent, sleeping = Module.run_integer, 0.5

    def slow(self: Module, x: np.ndarray) -> object:
        time.sleep(sleeping)
        return sent(self, x)

    monkeypatch.setattr(Module, "run_integer", slow)
    assert 0 < module.seconds(SAMPLES) < sleeping


def test_tilings_are_measured_there_and_kept_for_its_cpu(device: RpcDevice, tmp_path: Path) -> None:
    target = target_on(device, "native")
    tuner = Tuner(tmp_path, 2, Reporter(Console(file=StringIO())), device, Linker(target.mtriple))
    module = compiled(target, device, tuner)
    np.testing.assert_array_equal(module.run_integer(SAMPLES), expected())
    records = [json.loads(line) for line in (tmp_path / RECORDS).read_text().splitlines()]
    assert records
    for _, (_, seconds, made_for, _) in records:
        assert made_for["mtriple"] == target.mtriple and made_for["mcpu"] == target.mcpu
        assert made_for["num-cores"] == target.threads and 0 < min(seconds) < 1


def test_only_a_device_is_tuned_for_another_target(tmp_path: Path) -> None:
    with pytest.raises(CompilationError, match="mcpu: native is needed, or a device of that CPU"):
        compiled({"mcpu": "x86-64"}, tuner=Tuner(tmp_path, 2, silent()))


def test_what_is_measured_is_the_latency_to_two_digits() -> None:
    def cost(measured: float) -> Cost:
        return Cost(3.0, 10, 8.0, 1.0, measured)

    assert cost(0.0).of("latency") == 3.0
    assert cost(0.01234).of("latency") == cost(0.01249).of("latency") == 0.012 < cost(0.013).of("latency")
    assert cost(0.5).of("bytes") == cost(0.0).of("bytes")
