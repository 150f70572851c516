"""Devices that are not there, are another's, fall silent or die: one DeviceError each, in time; nothing stays open."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from mrt.backend.devices import target_on
from mrt.backend.tuning.tuner import Tuner
from mrt.device_address import Address
from mrt.errors import ConfigError, DeviceError
from mrt.progress import silent
from mrt.runtime import Linker, load_module, open_device
from mrt.runtime.device import KernelClock
from mrt.runtime.rpc.device import device_at
from tests.devices.conftest import Server, Servers
from tests.devices.network import SAMPLES, compiled, expected


@pytest.fixture
def mute() -> Iterator[int]:
    """The port of what accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def children() -> set[str]:
    """Processes that this one started and has not ended."""
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("rpc://10.0.0.7:9090", Address("10.0.0.7", 9090)),
        ("rpc://pi.local:9190/rasp%2Fpi4", Address("pi.local", 9190, "rasp/pi4")),
        ("rpc://[::1]:9090/k?seconds=600", Address("::1", 9090, "k", 600.0)),
    ],
)
def test_addresses(text: str, found: Address) -> None:
    assert Address.of(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:9090",
        "http://a:1",
        "rpc://a",
        "rpc://:1",
        "rpc://a:0",
        "rpc://a:70000",
        "rpc://a:1/two%20words",
        "rpc://a:1?second=1",
        "rpc://a:1?seconds=0",
        "rpc://a:1?seconds=nan",
        "rpc://u@a:1",
        "rpc://a:1#k",
    ],
)
def test_what_is_no_address_says_what_is_needed(text: object) -> None:
    with pytest.raises(ConfigError, match=r"device is .*rpc://host:port, with /key .* is needed"):
        Address.of(text)


def test_nobody_there(servers: Servers) -> None:
    before = children()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(DeviceError, match=f"rpc://127.0.0.1:{port}: connecting: nobody answers.*tvm.exec.rpc_server"):
        open_device(f"rpc://127.0.0.1:{port}")
    assert children() == before


@pytest.mark.parametrize("key", ["", "/other"])
def test_the_key_of_another_server(servers: Servers, key: str) -> None:
    with pytest.raises(DeviceError, match="has another key than .*--key"):
        open_device(f"rpc://127.0.0.1:{servers.board.port}{key}")


def test_a_key_that_the_tracker_does_not_know(servers: Servers) -> None:
    if servers.tracker is None:
        pytest.skip("TVM's tracker needs tornado")
    with pytest.raises(DeviceError, match="the tracker knows no server of key other; it has board: start one by"):
        open_device(f"rpc://127.0.0.1:{servers.tracker}/other")


@pytest.mark.parametrize("key", ["", "/board"])
def test_a_server_that_never_answers(mute: int, key: str) -> None:
    began = time.monotonic()
    with pytest.raises(DeviceError, match="no answer for 0.3 s.*try later, or give it more time"):
        open_device(f"rpc://127.0.0.1:{mute}{key}?seconds=0.3")
    assert time.monotonic() - began < 8


def test_a_server_that_serves_somebody_else(servers: Servers, library: Path) -> None:
    with open_device(servers.board.address) as first:
        load_module(library, device=first)
        with pytest.raises(DeviceError, match="the device may serve somebody else"):
            open_device(f"{servers.board.address}?seconds=0.3")
    assert open_device(servers.board.address).cpu.name  # it is free again


def test_a_device_that_dies_while_it_runs(servers: Servers, library: Path) -> None:
    before = children()
    with open_device(servers.mortal.address) as device:
        module = load_module(library, device=device)
        killed(servers.mortal)
        for _ in range(2):
            with pytest.raises(DeviceError, match="running the module: the device ended the session.*start it anew"):
                module.run_integer(SAMPLES)
    assert children() == before


def test_a_device_that_dies_while_it_is_tuned_for(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = device_at(servers.frail.address)
    target = target_on(device, "native")
    clock = device.clock

    @contextmanager
    def dying(linker: Linker) -> Iterator[KernelClock]:
        with clock(linker) as found:
            killed(servers.frail)
            yield found

    monkeypatch.setattr(device, "clock", dying)
    with pytest.raises(DeviceError, match="the device ended the session"):
        compiled(target, device, Tuner(tmp_path, 2, silent(), device))
    assert not device._open


def test_a_device_that_hangs(servers: Servers, library: Path) -> None:
    with open_device(f"{servers.slow.address}?seconds=1") as device:
        module = load_module(library, device=device)
        module.run_integer(SAMPLES)
        (session,) = servers.slow.sessions()
        os.kill(session, signal.SIGSTOP)
        try:
            began = time.monotonic()
            with pytest.raises(DeviceError, match="running the module: no answer for 1 s"):
                module.run_integer(SAMPLES)
            assert time.monotonic() - began < 8
        finally:
            os.kill(session, signal.SIGCONT)
    with open_device(servers.slow.address) as again:  # it has noticed that nobody waits
        np.testing.assert_array_equal(load_module(library, device=again).run_integer(SAMPLES), expected())


def killed(server: Server) -> None:
    (session,) = server.sessions()
    os.kill(session, signal.SIGKILL)
