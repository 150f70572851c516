"""A session on a device: every call ends, with a result or with one DeviceError, and closing it frees the device."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import tvm
from tvm import rpc

from mrt.device_address import Address
from mrt.errors import DeviceError
from mrt.runtime.rpc import line
from mrt.runtime.rpc.tracker import CONNECT_SECONDS, lent

Result = TypeVar("Result")
END_SECONDS = 2.0
"""For the line to say why it ended."""
SERVER = "python -m tvm.exec.rpc_server"


class Session:
    """One session; a server has one at a time. remote: TVM's."""

    def __init__(self, address: Address) -> None:
        """Raises DeviceError where nobody listens, the key is another's, or no server of TVM answers in time."""
        self.address = address
        self._last: dict[str, Any] = {}
        server = lent(address) if address.key else address
        self._line: subprocess.Popen[str] | None = _line_to(server)
        try:
            port = self._told().get("port")
            if port is None:
                raise self._error("connecting")
            self.remote: Any = self.call("connecting", lambda: rpc.connect("127.0.0.1", port, server.key))
        except BaseException:
            self.close()
            raise

    def call(self, doing: str, function: Callable[[], Result]) -> Result:
        """What `function` gives, which talks to the device; DeviceError, saying what was being done, where the device
        ended, fell silent, or raised an error."""
        if self._line is None:
            raise DeviceError(f"{self.address}: {doing}: the session was closed")
        try:
            return function()
        except (tvm.error.InternalError, RuntimeError, AttributeError, TypeError, ValueError, OSError) as error:
            raise self._error(doing, error) from error

    def close(self) -> None:
        """Hangs up; the device is free again. May be called twice."""
        ended, self._line = self._line, None
        if ended is None:
            return
        self.remote = None
        for stream in (ended.stdin, ended.stdout):
            if stream is not None:
                stream.close()
        try:
            ended.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            ended.kill()
            ended.wait()

    def _told(self) -> dict[str, Any]:
        """The next that the line says; nothing if it ended without a word."""
        out = None if self._line is None else self._line.stdout
        text = "" if out is None else out.readline()
        self._last = json.loads(text) if text.strip() else {}
        return self._last

    def _error(self, doing: str, error: Exception | None = None) -> DeviceError:
        """What went wrong, by the line's last word if it has ended."""
        facts = self._told() if "problem" not in self._last and self._has_ended() else self._last
        problem, detail = facts.get("problem"), facts.get("detail", "")
        if problem is None:
            return DeviceError(f"{self.address}: {doing}: {_reason(error)}")
        told = f"{self.address}: {doing}: {_TOLD[problem]}"
        return DeviceError(told.format(detail=detail, address=self.address, key=self.address.key or "none"))

    def _has_ended(self) -> bool:
        try:
            return self._line is not None and self._line.wait(END_SECONDS) is not None
        except subprocess.TimeoutExpired:
            return False


_TOLD = {
    line.REFUSED: f"nobody answers there ({{detail}}); start {SERVER} on the device, and see that host, port and "
    f"firewall let this machine in",
    line.SILENT: "no answer for {detail}; the device may serve somebody else, or be slow: try later, or give it more "
    "time, {address}?seconds=600",
    line.FOREIGN: f"no RPC server of TVM answers there ({{detail}}); {SERVER} of TVM {tvm.__version__} is needed, "
    "or its tracker and a key, {{address}}/key",
    line.WRONG_KEY: "the server there has another key than {key}; name the one that it was started with (--key), or "
    "where it reports to a tracker, the tracker's address with that key",
    line.ENDED: "the device ended the session; the process there was killed, or ran an instruction that its CPU lacks: "
    "see what the server printed and start it anew, and where that repeats itself name the device's CPU by "
    "compile.target",
}


def _line_to(server: Address) -> subprocess.Popen[str]:
    options = server.host, server.port, server.key, min(CONNECT_SECONDS, server.seconds), server.seconds
    command = [sys.executable, "-I", str(Path(line.__file__)), *map(str, options)]
    pipe = subprocess.PIPE
    # A session of its own, so that Ctrl-C is for this process alone, which then hangs up.
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True)


def _reason(error: Exception | None) -> str:
    lines = [text.strip() for text in str(error).splitlines() if text.strip()]
    said = [text for text in lines if not text.startswith(("File ", "^", "Stack trace", "Error caught from RPC"))]
    return (said[-1] if said else type(error).__name__)[:300]
