"""Real servers of TVM's RPC on 127.0.0.1, in processes of their own that do not import MRT."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from mrt.runtime.rpc.device import RpcDevice, device_at
from tests.devices.network import saved

SCRIPT = Path(__file__).with_name("serve.py")
KEYS = ("board", "mortal", "frail", "slow")


@dataclass(frozen=True)
class Server:
    """A server of a key, and the process that accepts its sessions, each a child of it."""

    key: str
    port: int
    pid: int

    @property
    def address(self) -> str:
        return f"rpc://127.0.0.1:{self.port}/{self.key}"

    def sessions(self) -> list[int]:
        """The processes of its sessions."""
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        return [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]


@dataclass(frozen=True)
class Servers:
    """tracker: its port; it lends a server of the key `board`. mortal, frail: for tests that kill what they serve."""

    tracker: int | None
    board: Server
    mortal: Server
    frail: Server
    slow: Server


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-I", str(SCRIPT), *KEYS]
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=tmp_path_factory.mktemp("device"))
    assert process.stdout is not None and process.stdin is not None
    try:
        facts = json.loads(process.stdout.readline())
        found = [Server(key, port, pid) for key, (pid, port) in zip(KEYS, facts["servers"], strict=True)]
        yield Servers(facts["tracker"], *found)
    finally:
        process.stdin.close()
        process.wait(10)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a compiled module, with its record."""
    return saved(tmp_path_factory.mktemp("module"))


@pytest.fixture
def device(servers: Servers) -> Iterator[RpcDevice]:
    found = device_at(servers.board.address)
    yield found
    found.close()
