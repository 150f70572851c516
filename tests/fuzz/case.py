"""One case of fuzzing, what came of it, and what it runs in: a process of its own that is held to limits."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

MEBIBYTE = 2**20


@dataclass
class Outcome:
    """tried: operators, formats, engines, by name, as often as each was met. refused: the same where MRT refused, as it
    may. finding: what MRT must not do, in one paragraph; "" where there is none."""

    tried: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    finding: str = ""

    def to_json(self) -> str:
        return json.dumps({"tried": self.tried, "refused": self.refused, "finding": self.finding})

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        data = json.loads(text)
        return cls(Counter(data["tried"]), Counter(data["refused"]), data["finding"])


@dataclass(frozen=True)
class Limits:
    """seconds: of the processor. megabytes: beyond what the process began with. patience: seconds by the clock, which
    other processes may take most of."""

    seconds: int
    megabytes: int
    patience: int = 900


def isolated(work: Callable[[], Outcome], limits: Limits) -> Outcome:
    """What `work` gives in a child process; a crash, a hang, and what it raises are findings.

    The child is a fork, so that nothing is imported anew. It leads a process group, which ends with it.
    """
    sys.stdout.flush()
    with tempfile.TemporaryFile() as said:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _run_child(work, limits, writing, said.fileno())
        os.close(writing)
        try:
            content = _read_all(reading, time.monotonic() + limits.patience)
            if content is None:
                os.kill(child, signal.SIGXCPU)  # which has it say where it is
                time.sleep(1)
        finally:
            os.close(reading)
            _end(child)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        last = shortened(said.read().decode("utf-8", "replace").strip())
    if content is None:
        return Outcome(finding=f"hang: no answer after {limits.patience} s. {last}")
    if not content:
        reason = signal.Signals(-status).name if status < 0 else f"status {status}"
        return Outcome(finding=f"crash: {reason}. {last}")
    return Outcome.from_json(content.decode())


def _run_child(work: Callable[[], Outcome], limits: Limits, writing: int, errors: int) -> None:
    """Never returns."""
    try:
        os.setsid()
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        faulthandler.enable(errors)
        faulthandler.register(signal.SIGXCPU, errors, chain=True)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (limits.seconds, limits.seconds + 5))
        if (held := _held()) is not None:
            most = held + limits.megabytes * MEBIBYTE
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        try:
            outcome = work()
        except BaseException:
            outcome = Outcome(finding=traceback.format_exc(limit=-12).strip())
        with os.fdopen(writing, "w") as file:
            file.write(outcome.to_json())
    finally:
        os._exit(0)


def _held() -> int | None:
    """The bytes of this process' address space; None where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return None


def _read_all(reading: int, until: float) -> bytes | None:
    """All that is written until the other end is closed; None where that takes longer than until then."""
    parts = []
    while (left := until - time.monotonic()) > 0:
        if not select.select([reading], [], [], left)[0]:
            break
        part = os.read(reading, 2**16)
        if not part:
            return b"".join(parts)
        parts.append(part)
    return None


def _end(child: int) -> None:
    """Ends the child's process group, should anything of it be left."""
    for number in (child, -child):
        try:
            os.kill(number, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def shortened(text: str) -> str:
    """The beginning, which names what is found, and the end, which is where a traceback says what was raised."""
    return text if len(text) <= 3000 else f"{text[:1500]}\n[...]\n{text[-1500:]}"
