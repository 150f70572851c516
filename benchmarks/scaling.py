"""What many workers cost and gain: measured here against threads, and projected to clusters by simulated workers.

    python benchmarks/scaling.py

Prints the tables of docs/scaling.md. What is measured is the least of several turns; Dask is needed: extra [dask].
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from calibration_turns import save_case
from in_turns import machine, row
from seeded_networks import mobilenetv2, resnet50
from simulated_cluster import Answer, Ballast, Simulated, Sleeping, Took, simulated, took

from mrt.execution import cluster

WAYS = {0: "threads", 1: "1 worker process", 2: "2 worker processes"}
SIDE, SIDE_OF_RESNET = 96, 224
IMAGES = 50_000
"""Of ImageNet's validation set."""
RANGES_BYTES, GRAM_BYTES = 200_000, 8_000_000
SHORT = 2_000
"""Empty parts, which show what each costs."""
WORK = ("ranges", "gram", "results", "program")
IDEAL = 5.0
"""Seconds that simulated work takes where nothing is lost, at most."""


class Turns:
    """A process that calibrates one way."""

    def __init__(self, processes: int, folder: Path) -> None:
        command = [sys.executable, str(Path(__file__).with_name("calibration_turns.py")), str(processes), str(folder)]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.start = float(self._reply()["seconds"])

    def __call__(self, task: str, count: int) -> dict[str, Any]:
        """What a task found and took; ends the benchmark where it fails."""
        assert self._process.stdin is not None
        print(task, count, file=self._process.stdin, flush=True)
        return self._reply()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit("a process of calibration_turns.py failed")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def started(ways: Iterable[int], folder: Path) -> Iterator[dict[int, Turns]]:
    """A process for each way, all of which wait for their turns."""
    turns: dict[int, Turns] = {}
    try:
        for way in ways:
            turns[way] = Turns(way, folder)
        yield turns
    finally:
        for each in turns.values():
            each.close()


Rows = Mapping[int, Mapping[str, Any]]
"""What was found by each way."""


def in_turns(turns: Mapping[int, Turns], task: str, count: int, rounds: int) -> Rows:
    """The least that each way took in so many rounds; RuntimeError where one found something else than another."""
    found: dict[int, list[dict[str, Any]]] = {way: [] for way in turns}
    for place in range(rounds):
        for way in list(turns)[:: -1 if place % 2 else 1]:
            found[way].append(turns[way](task, count))
    digests = {each.get("digest") for replies in found.values() for each in replies}
    if len(digests) > 1:
        raise RuntimeError(f"{task} gives {len(digests)} different results")
    return {way: _least(replies) for way, replies in found.items()}


def _least(replies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    least = {key: min(reply[key] for reply in replies) for key in ("seconds", "cpu_seconds")}
    most = {key: max(reply[key] for reply in replies) for key in ("own_mib", "worker_mib")}
    return {**replies[-1], **least, **most}


def print_table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    print(f"\n{row(heading)}\n{row(['---'] * len(heading))}")
    for cells in rows:
        print(row(cells), flush=True)


def print_ways(title: str, found: Rows, start: Mapping[int, float]) -> None:
    """What each way took. start: seconds before the first part."""
    heading = (title, "start s", "seconds", "against threads", "CPU s", "MiB of the run", "MiB of a worker")
    lines = []
    for way, reply in found.items():
        shares = f"{start[way]:.1f}", f"{reply['seconds']:.1f}", f"{reply['seconds'] / found[0]['seconds']:.2f}"
        memory = f"{reply['own_mib']:.0f}", f"{reply['worker_mib']:.0f}" if way else "-"
        lines.append((WAYS[way], *shares, f"{reply['cpu_seconds']:.1f}", *memory))
    print_table(heading, lines)


def print_parts(turns: Mapping[int, Turns], parts: int, rounds: int) -> None:
    """What an empty part costs."""
    lines = []
    found = {task: in_turns(turns, task, parts, rounds) for task in ("gathered", "in_order")}
    for way in turns:
        cells = [f"{1e3 * found[task][way]['seconds'] / parts:.3f}" for task in ("gathered", "in_order")]
        cells += [f"{1e3 * found[task][way]['cpu_seconds'] / parts:.3f}" for task in ("gathered", "in_order")]
        lines.append((WAYS[way], *cells))
    print_table(("ms an empty part", "added up", "with a result", "CPU, added up", "CPU, with a result"), lines)


def measure_here(folder: Path, samples: int, rounds: int) -> None:
    """Calibration on this machine, by threads and by processes."""
    case = save_case(folder / "mobilenetv2", mobilenetv2(), samples, SIDE)
    with started(WAYS, case) as turns:
        start = {way: each.start for way, each in turns.items()}
        found = in_turns(turns, "ranges", samples, rounds)
        print_ways(f"ranges and means, MobileNetV2 of {SIDE} × {SIDE}, {samples} samples", found, start)
        gram = in_turns(turns, "moments", max(samples // 8, 1), 1)
        print_ways(f"Gram matrices of {gram[0]['bytes'] / 1e6:.0f} MB, {max(samples // 8, 1)} samples", gram, start)
        print_parts(turns, SHORT, 1)


@dataclass(frozen=True)
class Costs:
    """Of one network on one core: seconds before the first sample and for each. digest: of what was found."""

    fixed: float
    sample: float


def costs_of(folder: Path, few: int, many: int) -> Costs:
    """Those of ResNet-50, as one worker process calibrates it."""
    case = save_case(folder / "resnet50", resnet50(), many, SIDE_OF_RESNET)
    with started((1,), case) as turns:
        short, long = (turns[1]("ranges", count)["seconds"] for count in (few, many))
    sample = max((long - short) / (many - few), 1e-4)
    return Costs(max(short - few * sample, 0.0), sample)


@dataclass(frozen=True)
class Projected:
    """Simulated work: so many tasks of Dask, which would take `ideal` seconds where nothing were lost."""

    workers: int
    name: str
    tasks: int
    ideal: float
    took: Took

    def cells(self) -> tuple[str, ...]:
        """A line of the table."""
        found = self.took
        shares = f"{self.ideal:.2f}", f"{found.seconds:.2f}", f"{self.ideal / found.seconds:.0%}"
        per_task = f"{1e3 * found.scheduler / self.tasks:.2f}"
        return (
            f"{self.workers}",
            self.name,
            f"{self.tasks}",
            *shares,
            per_task,
            f"{found.client:.1f}",
            f"{found.workers:.1f}",
        )


HEADING = (
    "workers",
    "work",
    "tasks",
    "ideal s",
    "seconds",
    "efficiency",
    "scheduler ms a task",
    "client CPU s",
    "workers CPU s",
)


def gathered(on: Simulated, name: str, parts: int, seconds: float, size: int, runs: int = cluster.RUNS) -> Projected:
    """Parts that are added up, in `runs` runs for each worker; their number is known from the total."""
    count, work = on.cluster.width, Sleeping(seconds, size)
    with patch.object(cluster, "RUNS", runs), took(on) as found:
        total = on.cluster.gathered(work, range(parts))
    if not (total.values == parts).all():
        raise RuntimeError(f"{parts} parts are {total.values[0]:g}")
    length = -(-parts // (runs * count))
    merged = 2 * -(-parts // length) - 1
    return Projected(
        count, f"{name}, {runs} runs a worker", merged, -(-parts // length // count) * length * seconds, found[0]
    )


def answered(on: Simulated, name: str, parts: int, seconds: float) -> Projected:
    """Parts with a result each."""
    count = on.cluster.width
    with took(on) as found:
        answers = sum(1 for _ in on.cluster.in_order(Answer(seconds, 1_000), range(parts)))
    if answers != parts:
        raise RuntimeError(f"{parts} parts have {answers} results")
    return Projected(count, name, parts, -(-parts // count) * seconds, found[0])


def sent(on: Simulated, size: int) -> Projected:
    """A program that every worker needs for its first part."""
    count = on.cluster.width
    with took(on) as found:
        on.cluster.gathered(Sleeping(0.0, 8), range(count), (Ballast(bytes(size)),))
    return Projected(count, f"a program of {size / 1e6:g} MB", 2 * count - 1, 0.0, found[0])


def project(workers: int, costs: Costs, work: Collection[str] = WORK) -> Iterator[Projected]:
    """What the scheduler, the reduction and the program cost, with workers that sleep as long as real ones work.

    work: which of WORK.
    """
    parts = min(int(IDEAL * workers / costs.sample), IMAGES)
    size = GRAM_BYTES if workers <= 100 else GRAM_BYTES // 8
    batch = min(16 * costs.sample, IDEAL)
    with simulated(workers) as on:
        sent(on, 1_000)
        if "ranges" in work:
            for runs in (1, cluster.RUNS):
                yield gathered(on, "ranges", parts, costs.sample, RANGES_BYTES, runs)
        if "gram" in work:
            yield gathered(on, f"Gram totals of {size / 1e6:g} MB", parts, costs.sample, size, 1)
        if "results" in work:
            yield answered(on, f"results, parts of {batch:.1f} s", 4 * workers, batch)
        if "program" in work:
            yield sent(on, 1_000_000 if workers > 100 else 14_000_000)


def noted(found: Projected, best: dict[int, float]) -> Projected:
    """What was found; `best` then holds the highest efficiency of so many workers."""
    best[found.workers] = max(best.get(found.workers, 0.0), found.ideal / found.took.seconds)
    return found


def print_projection(costs: Costs, efficiency: Mapping[int, float]) -> None:
    """The validation set of ImageNet, calibrated by ResNet-50. efficiency: of so many workers."""
    lines = []
    for workers, share in efficiency.items():
        seconds = costs.fixed + IMAGES * costs.sample / workers / share
        lines.append((f"{workers}", f"{share:.0%}", f"{seconds / 60:.1f}"))
    print(f"\nResNet-50: {costs.sample * 1e3:.0f} ms a sample on one core, {costs.fixed:.1f} s before the first.")
    print_table(("workers", "efficiency", f"minutes for {IMAGES} images, projected"), lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2_000, help="that MobileNetV2 is calibrated on")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each way")
    parser.add_argument("--workers", type=int, nargs="*", default=[10, 100, 1000], help="simulated ones")
    parser.add_argument(
        "--sample", type=float, help="seconds of a sample of ResNet-50 on one core, where they are known"
    )
    parser.add_argument("--work", nargs="*", choices=WORK, default=WORK, help="that these do")
    given = parser.parse_args()
    print(f"{machine()}; load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        if given.samples:
            measure_here(Path(name), given.samples, given.rounds)
        if not given.workers:
            return
        costs = costs_of(Path(name), 8, 40) if given.sample is None else Costs(0.0, given.sample)
    best: dict[int, float] = {}
    found = (each for workers in given.workers for each in project(workers, costs, given.work))
    print_table(HEADING, (noted(each, best).cells() for each in found))
    print_projection(costs, {2: 1.0, **best})


if __name__ == "__main__":
    main()
