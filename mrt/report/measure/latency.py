"""The seconds of a run: the compiled integers, and in turns with them the float network, compiled for the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from mrt.backend import TvmRunner
from mrt.collector import paused_collector
from mrt.compilation import TargetConfig
from mrt.report.facts import Latency
from mrt.report.measure.numbers import rounded
from mrt.report.measure.subject import Subject
from mrt.runtime import Module
from mrt.symbol import Array
from mrt.symbol.rebatch import batch_of, sized
from mrt.workers import cores

SECONDS, LEAST_RUNS, MOST_RUNS = 0.5, 5, 2000
"""How long each network is run in all, and how often at least and at most."""
TURNS = 5
"""How often they take turns: what else the machine does meets both."""
MOST_OF_THE_RUN, FEW_SECONDS = 0.2, 15.0
"""What measuring may take where it compiles once more: this share of the run's time before, or so long."""
FLOAT_BY = "TVM, the prepared network in float32, for the same CPU"

Run = Callable[[], object]


def latency_of(subject: Subject, float_run: Run | None = None) -> Latency:
    """The module's seconds for as many samples as it takes at once, their integers by chance.

    float_run: runs the float network on as many. Raises ValueError where there is no module that this machine runs.
    """
    module = _module(subject)
    feeds = _integers(module)
    runs = [lambda: module.run_integer(feeds), *([] if float_run is None else [float_run])]
    seconds = in_turns(runs)
    low, middle, high = np.quantile(seconds[0], [0.1, 0.5, 0.9])
    ends = [rounded(each) for each in np.quantile(seconds[1], [0.1, 0.5, 0.9])] if float_run is not None else None
    return Latency(
        integer=rounded(middle),
        low=rounded(low),
        high=rounded(high),
        float_network=None if ends is None else ends[1],
        float_range=None if ends is None else [ends[0], ends[2]],
        float_by="" if ends is None else FLOAT_BY,
        batch=_samples(module),
        threads=_threads(module),
        runs=len(seconds[0]),
    )


def in_turns(runs: list[Run]) -> list[list[float]]:
    """The seconds of every call of each."""
    for run in runs:
        run()
    seconds: list[list[float]] = [[] for _ in runs]
    for turn in range(1, TURNS + 1):
        for run, own in zip(runs, seconds, strict=True):
            ends = time.perf_counter() + SECONDS / TURNS
            least, most = -(-turn * LEAST_RUNS // TURNS), turn * MOST_RUNS // TURNS
            while len(own) < least or (time.perf_counter() < ends and len(own) < most):
                began = time.perf_counter()
                run()
                own.append(time.perf_counter() - began)
    return seconds


def float_run_of(subject: Subject) -> Run:
    """The prepared float network, compiled for as many samples and cores as the module takes, on what its integers
    stand for. It ends where the integers do: a float tail is in neither.

    Raises ValueError where there is no module, or where compiling would take too much of the run's time.
    """
    module = _module(subject)
    check_time(subject, "compiling the float network once more", min(map(_spent(subject), ("calibrate", "compile"))))
    graph = sized(subject.prepared, module.batch)
    if batch_of(graph) != module.batch:
        raise ValueError(f"the float network takes {batch_of(graph)} samples at once, the module {module.batch}")
    side_by_side = module.workers > 1
    threads = 1 if side_by_side else module.record.made_from.target.threads
    dtypes = {symbol.name: symbol.dtype for symbol in graph.inputs}
    integers = _integers(module)
    real = {each.name: each.dequantize(integers[each.name]).astype(dtypes[each.name]) for each in module.inputs}
    with paused_collector():
        evaluate = TvmRunner(TargetConfig(threads=threads)).prepare(graph)
    parts = [
        {name: x[start : start + module.batch] for name, x in real.items()}
        for start in range(0, _samples(module), module.batch)
    ]
    if not side_by_side:
        return lambda: evaluate(parts[0])
    pool = ThreadPoolExecutor(module.workers)  # kept: every thread of its own makes a virtual machine first
    return lambda: list(pool.map(evaluate, parts))


def check_time(subject: Subject, what: str, seconds: float) -> None:
    """Raises ValueError where that would take more than a report may, beside the run that it is of."""
    if seconds > most_seconds(subject):
        raise ValueError(f"{what} would take {seconds:.0f} s, too much of the run's time")


def most_seconds(subject: Subject) -> float:
    """What compiling once more for a report may take."""
    return max(MOST_OF_THE_RUN * sum(subject.seconds.values()), FEW_SECONDS)


def _spent(subject: Subject) -> Callable[[str], float]:
    return lambda stage: subject.seconds.get(stage, 0.0)


def _module(subject: Subject) -> Module:
    if subject.module is None:
        raise ValueError("the network was not compiled for this machine")
    return subject.module


def _samples(module: Module) -> int:
    return module.batch * module.workers


def _threads(module: Module) -> int:
    return module.workers if module.workers > 1 else cores()


def _integers(module: Module) -> dict[str, Array]:
    random = np.random.default_rng(0)
    return {
        entry.name: random.integers(
            entry.lo, entry.hi, (_samples(module), *entry.shape[1:]), dtype=np.int64, endpoint=True
        ).astype(entry.dtype)
        for entry in module.inputs
    }
