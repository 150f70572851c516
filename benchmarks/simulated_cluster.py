"""The scheduler of Dask with as many workers as are wanted, whose parts sleep as long as real ones take.

    python benchmarks/simulated_cluster.py scheduler
    python benchmarks/simulated_cluster.py workers ADDRESS COUNT

The scheduler, the client and the protocol are Dask's own. Workers are those of light_worker.py, all in one process.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import dask
import numpy as np
import psutil
from distributed import Client, Scheduler
from light_worker import started
from numpy.typing import NDArray

from mrt.execution.cluster import Cluster

HERE = "127.0.0.1"
AT_ONCE = 50
"""Workers that start at the same time."""
SELDOM = {
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.scheduler.http.routes": [],
}
"""What the scheduler does besides, which is no work of its own."""


@dataclass(frozen=True, eq=False)
class Sum:
    """A total: how many parts it is of, in as many places as it is large."""

    values: NDArray[np.float64]

    def merge(self, other: Sum) -> Sum:
        return Sum(self.values + other.values)


@dataclass(frozen=True)
class Sleeping:
    """Begins to gather parts that take `seconds` each; the total takes `bytes`."""

    seconds: float
    bytes: int

    def __call__(self, *programs: object) -> Sleeper:
        return Sleeper(self)


class Sleeper:
    """Counts parts, and sleeps for all of them at the end."""

    def __init__(self, work: Sleeping) -> None:
        self._work, self._count = work, 0

    def add(self, part: int) -> None:
        self._count += 1

    def total(self) -> Sum:
        time.sleep(self._count * self._work.seconds)
        return Sum(np.full(self._work.bytes // 8, float(self._count)))


@dataclass(frozen=True)
class Answer:
    """Work on one part that takes `seconds`, and gives so many bytes."""

    seconds: float
    bytes: int

    def __call__(self, part: int, *programs: object) -> NDArray[np.uint8]:
        time.sleep(self.seconds)
        return np.full(self.bytes, part % 256, np.uint8)


@dataclass(frozen=True, eq=False)
class Ballast:
    """A program that takes room."""

    content: bytes


@dataclass(frozen=True)
class Simulated:
    """A cluster, and the processes of its scheduler and of its workers, of all of them one."""

    cluster: Cluster
    scheduler: psutil.Process
    workers: psutil.Process

    def used(self) -> tuple[float, float, float]:
        """Seconds of CPU so far: of this process, of the scheduler's, and of the workers'."""
        own, scheduler, workers = (
            sum(process.cpu_times()[:2]) for process in (psutil.Process(), self.scheduler, self.workers)
        )
        return own, scheduler, workers


@dataclass(frozen=True)
class Took:
    """Seconds, and those of CPU of the client, of the scheduler and of all workers."""

    seconds: float
    client: float
    scheduler: float
    workers: float


@contextmanager
def simulated(count: int) -> Iterator[Simulated]:
    """A cluster of so many workers, in processes that are ended with the block."""
    with ExitStack() as stack:
        scheduler, address = stack.enter_context(_process("scheduler"))
        workers, _ = stack.enter_context(_process("workers", address, str(count)))
        client = stack.enter_context(Client(address, set_as_default=False, timeout=60))
        client.wait_for_workers(count, timeout=120)
        yield Simulated(Cluster(client), psutil.Process(scheduler.pid), psutil.Process(workers.pid))


@contextmanager
def took(on: Simulated) -> Iterator[list[Took]]:
    """Filled with what the block took."""
    found: list[Took] = []
    before, started = on.used(), time.perf_counter()
    yield found
    seconds = time.perf_counter() - started
    found.append(Took(seconds, *(after - first for after, first in zip(on.used(), before, strict=True))))


@contextmanager
def _process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """This script, and the first line that it prints."""
    command = [sys.executable, str(Path(__file__).resolve()), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


async def _schedule() -> None:
    async with Scheduler(host=HERE, port=0, dashboard=False, dashboard_address=f"{HERE}:0") as scheduler:
        print(scheduler.address, flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def _work(address: str, count: int) -> None:
    workers = await started(address, HERE, [str(place) for place in range(count)], AT_ONCE)
    print(len(workers), flush=True)
    await asyncio.to_thread(sys.stdin.read)


def main() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with dask.config.set(SELDOM):
        asyncio.run(_schedule() if sys.argv[1] == "scheduler" else _work(sys.argv[2], int(sys.argv[3])))


if __name__ == "__main__":
    main()
