"""Engines measured in turns, each in a process of its own, on files that are made once.

In one process the thread pools of two engines spoil each other's figures; one after the other, what else the machine
does would be charged to one of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from instruction_sets import ISA
from makers import HERE
from numpy.typing import NDArray
from wild_makers import MAKERS

SCRIPT = Path(__file__).with_name("peers.py")
PAUSE = 0.05
"""Seconds between two turns: an engine's threads wait for work a while before they sleep."""
MADE = "made.json"
"""Of every folder of the store, written last: how long it took to make."""


class ChildError(Exception):
    """What a process failed with, as one line."""


# Files


class Store:
    """A folder of files that are made where they are missing; each is named by all that it is made from.

    limit: seconds that a maker may take; None for any.
    """

    def __init__(self, folder: Path, limit: float | None = None) -> None:
        self._folder, self._limit = folder, limit
        self._failed: dict[Path, ChildError] = {}

    def get(self, maker: str, **arguments: Any) -> Path:
        """The folder that a maker fills from `arguments`, paths of the store among them; ChildError where it fails.

        What has failed once fails again at once.
        """
        folder = self._folder / f"{maker}-{self._key(maker, arguments)}"
        if folder in self._failed:
            raise self._failed[folder]
        if (folder / MADE).is_file():
            return folder
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.mkdtemp(dir=self._folder, prefix=f".{maker}.")
        try:
            asked = {"do": "make", "maker": maker, "folder": temporary, "arguments": _plain(arguments)}
            with running(asked, os.environ) as child:
                Path(temporary, MADE).write_text(json.dumps(child.reply(self._limit)))
            os.replace(temporary, folder)
        except ChildError as error:
            # Others' errors name files; where the store lies says nothing to a reader of what is reported.
            said = self._failed[folder] = ChildError(str(error).replace(f"{self._folder}{os.sep}", ""))
            raise said from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return folder

    def _key(self, maker: str, arguments: Mapping[str, Any]) -> str:
        """A digest of the maker, its packages and sources, and its arguments, paths of the store being such names."""
        facts = MAKERS[maker]
        named = {name: value.name if isinstance(value, Path) else value for name, value in arguments.items()}
        packages = {package: version_of(package) for package in facts.packages}
        content = [maker, named, packages, _digest((*facts.sources, HERE / "makers.py"))]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def making_time(folder: Path) -> float:
    """The seconds that a folder of the store took to make."""
    return float(json.loads((folder / MADE).read_text())["seconds"])


def making_work(folder: Path) -> float:
    """The seconds of CPU, of all threads, that a folder of the store took to make: what else runs hardly shows."""
    return float(json.loads((folder / MADE).read_text())["cpu_seconds"])


def making_peak(folder: Path) -> float:
    """The peak of the resident memory of the process that made a folder of the store, in MiB."""
    return float(json.loads((folder / MADE).read_text())["peak_mib"])


@lru_cache
def _digest(sources: tuple[Path, ...]) -> str:
    """SHA-256 of the Python files that are `sources` or below them."""
    found = hashlib.sha256()
    for source in sources:
        for path in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
            content = path.read_bytes()
            found.update(f"{path.relative_to(source.parent)} {len(content)}\n".encode() + content)
    return found.hexdigest()


def version_of(package: str) -> str:
    """The installed version of a package; "" where there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


# Processes


class Child:
    """A running process of `peers.py`."""

    def __init__(self, asked: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT), json.dumps(asked)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env=dict(environment),
        )

    def reply(self, limit: float | None = None) -> dict[str, Any]:
        """The next line; ChildError with the last that the process said where it ended.

        limit: seconds after which it is ended, and the error says so.
        """
        assert self._process.stdout is not None
        late = threading.Event()
        timer = threading.Timer(limit or 0, lambda: (late.set(), self._process.kill()))
        if limit is not None:
            timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if late.is_set():
            raise ChildError(f"it took more than {limit:g} seconds")
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        status = self._process.wait()
        self._said.seek(0)
        said = [text.strip() for text in self._said if text.strip()]
        raise ChildError(said[-1] if said else f"the process ended with status {status}")

    def measure(self, seconds: float) -> list[float]:
        """The seconds of each call of one turn."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # of which the reply says why
            print(json.dumps(seconds), file=self._process.stdin, flush=True)
        times: list[float] = self.reply()["seconds"]
        return times

    def close(self) -> None:
        """Ends the process."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
        self._process.wait()
        self._said.close()


@contextmanager
def running(asked: Mapping[str, Any], environment: Mapping[str, str]) -> Iterator[Child]:
    """A process that is ended where the block ends."""
    child = Child(asked, environment)
    try:
        yield child
    finally:
        child.close()


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that JSON can hold."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in arguments.items()}


@dataclass(frozen=True)
class Launch:
    """What a process runs: an engine of `peers.py` with its arguments. test: the folder of the samples it begins with.

    isa: the instruction set that it is limited to, one of `ISA`.
    """

    engine: str
    arguments: Mapping[str, Any]
    test: Path
    threads: int
    batch: int
    isa: str = "native"

    @contextmanager
    def start(self) -> Iterator[Child]:
        """The process; its first reply has the outputs of the samples."""
        asked = {"do": "run", "engine": self.engine, "arguments": _plain(self.arguments), "test": str(self.test)}
        own = {"TVM_NUM_THREADS": str(self.threads), "TVM_BIND_THREADS": "0", "OMP_NUM_THREADS": str(self.threads)}
        environment = {**os.environ, **own, **ISA[self.isa]}
        limits = {"threads": self.threads, "batch": self.batch, "isa": self.isa}
        with running({**asked, **limits}, environment) as child:
            yield child


class Runner(Protocol):
    """What takes turns."""

    def measure(self, seconds: float) -> list[float]:
        """The seconds of each call of a turn of about `seconds`; ChildError where it fails."""


def race(runners: Mapping[str, Runner], rounds: int, seconds: float) -> dict[str, list[float] | ChildError]:
    """The times of all calls by name, over `rounds` in which each has one turn; what failed with has no further turn.

    Every second round goes backwards, so that none always follows the same.
    """
    found: dict[str, list[float]] = {name: [] for name in runners}
    failed: dict[str, ChildError] = {}
    for place in range(rounds):
        for name in list(runners)[:: -1 if place % 2 else 1]:
            if name in failed:
                continue
            time.sleep(PAUSE)
            try:
                found[name] += runners[name].measure(seconds)
            except ChildError as error:
                failed[name] = error
    return {**found, **failed}


def figures(times: Sequence[float]) -> dict[str, float]:
    """Of the seconds of calls, in milliseconds, by the names that files of figures have: the median, and what a tenth
    and nine tenths of them took at most, in quiet moments and with those in which others use the machine."""
    shares = {"median_ms": 0.5, "tenth_ms": 0.1, "nine_tenths_ms": 0.9}
    return {name: float(np.quantile(times, share)) * 1e3 for name, share in shares.items()}


@dataclass(frozen=True)
class Measured:
    """What was found of an engine: the seconds of each call, and the outputs of the test samples."""

    times: Sequence[float]
    outputs: NDArray[Any]

    @property
    def milliseconds(self) -> float:
        """The median."""
        return figures(self.times)["median_ms"]


def measure(
    launches: Mapping[str, Callable[[], Launch]], rounds: int, seconds: float
) -> tuple[dict[str, Measured], dict[str, ChildError]]:
    """Starts all by name, making what they need, and has them take turns: what was found, and what failed with what."""
    runners: dict[str, Child] = {}
    outputs: dict[str, NDArray[Any]] = {}
    failed: dict[str, ChildError] = {}
    with ExitStack() as stack:
        for name, launch in launches.items():
            try:
                runner = stack.enter_context(launch().start())
                outputs[name] = np.asarray(runner.reply()["outputs"])
                runners[name] = runner
            except ChildError as error:
                failed[name] = error
        found = race(runners, rounds, seconds)
    failed |= {name: times for name, times in found.items() if isinstance(times, ChildError)}
    return {n: Measured(times, outputs[n]) for n, times in found.items() if not isinstance(times, ChildError)}, failed


# Cases and figures


@dataclass(frozen=True)
class Case:
    """What engines are compared on. batch: the samples of one call."""

    model: str
    threads: int
    batch: int

    def __str__(self) -> str:
        return f"{self.model}, {self.threads} thread{'s' * (self.threads > 1)}, batch {self.batch}"

    def facts(self, measured: Measured, **what: Any) -> dict[str, Any]:
        """A row of the JSON file. what: says which engine it is of."""
        where = {"threads": self.threads, "batch": self.batch}
        return {"model": self.model, **what, **where, **figures(measured.times), "runs": len(measured.times)}


def cases(models: Sequence[str], threads: Sequence[int], batches: Sequence[int]) -> Iterator[Case]:
    for model, count, batch in product(models, threads, batches):
        yield Case(model, count, batch)


def cosine(found: NDArray[Any], reference: NDArray[Any]) -> float:
    """Between all outputs of all samples; NaN where one is 0 throughout or not finite."""
    a, b = (np.asarray(x, np.float64).ravel() for x in (found, reference))
    length = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / length if length else float("nan")


def row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def machine() -> str:
    """This machine's CPU, its processors and which instructions for int8 it has."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))}
    flags = facts.get("flags", "").split()
    known = [f"{flag} {'yes' if flag in flags else 'no'}" for flag in ("avx2", "avx_vnni", "avx512_vnni", "amx_int8")]
    name = facts.get("model name") or platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} processors; {', '.join(known)}"
