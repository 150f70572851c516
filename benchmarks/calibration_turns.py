"""Calibrates by threads or by worker processes, in a process that is told when its turn is.

    python benchmarks/calibration_turns.py PROCESSES FOLDER

PROCESSES: 0 for threads. FOLDER: that of `save_case`. Its first line says how long the workers took to start. For every
line of its input, a task and how often or on how many samples, it prints what that took, as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil

from mrt.backend import ONE_THREAD, TvmRunner
from mrt.batches import Batches
from mrt.calibration import CalibrationConfig, calibrate
from mrt.calibration.ranges import Calibration
from mrt.config import NpzDataset
from mrt.datasets import load_dataset
from mrt.execution import Executor
from mrt.execution.opened import opened
from mrt.execution.options import ClusterConfig
from mrt.frontend import load_model
from mrt.preparation import PreparationConfig, prepare
from mrt.quantization.algorithms.algorithm import Samples
from mrt.quantization.algorithms.moments import with_moments
from mrt.quantization.algorithms.needs import needs_of
from mrt.quantization.options import QuantizationConfig
from mrt.quantization.presets import with_preset
from mrt.workers import cores

NETWORK, DATA = "network.onnx", "data.npz"
LOOK = 0.25
"""Seconds between two looks at the memory of the processes."""


def save_case(folder: Path, model: onnx.ModelProto, samples: int, side: int, channels: int = 3) -> Path:
    """A folder with the network, for images of so many pixels a side, and as many random images as integers."""
    folder.mkdir()
    shape = model.graph.input[0].type.tensor_type.shape
    for axis in (2, 3):
        shape.dim[axis].dim_value = side
    onnx.save(model, folder / NETWORK)
    images = np.random.default_rng(0).integers(0, 256, (samples, channels, side, side), np.uint8)
    np.savez(folder / DATA, x=images)
    return folder


@dataclass(frozen=True)
class Nothing:
    """Takes parts that are empty."""

    def add(self, part: int) -> None:
        pass

    def total(self) -> Nothing:
        return self

    def merge(self, other: Nothing) -> Nothing:
        return self


def nothing(part: int) -> None:
    """The work on an empty part."""


class Tasks:
    """What is measured: each gives what tells its result from another, and how large the total is that is merged."""

    def __init__(self, folder: Path, executor: Executor) -> None:
        self._executor = executor
        self._graph = prepare(load_model(folder / NETWORK), PreparationConfig()).graph
        self._config = with_preset(
            QuantizationConfig.model_validate({"weight": {"rounding": "gptq"}}), self._graph, True
        )
        self._described = NpzDataset.model_validate({"npz": folder / DATA, "y": None, "scale": 1 / 255})
        self._runner = TvmRunner(ONE_THREAD)
        self._observed: Calibration | None = None

    def ranges(self, samples: int) -> dict[str, Any]:
        """The ranges and means of all tensors, from reading the data to the result."""
        data, needs = self._data(samples), needs_of(self._graph, self._config)
        options = CalibrationConfig(samples=samples)
        self._observed = found = calibrate(self._graph, data, needs, options, self._runner, executor=self._executor)
        return {"digest": _digest(f"{sorted(found.ranges.items())} {found.means} {found.squares}")}

    def moments(self, samples: int) -> dict[str, Any]:
        """The Gram matrices that rounding reads, on the ranges that were found last."""
        if self._observed is None:
            raise ValueError("ranges come first")
        options = CalibrationConfig(samples=samples)
        given = Samples(self._data(samples), options, self._runner, total=samples, executor=self._executor)
        found = with_moments(self._graph, self._observed, self._config, given).moments
        layers = {} if found is None else found.layers
        content = b"".join(name.encode() + layers[name].xx.tobytes() for name in sorted(layers))
        return {"digest": _digest(content), "bytes": sum(layer.xx.nbytes for layer in layers.values())}

    def gathered(self, parts: int) -> dict[str, Any]:
        """Empty parts whose total is asked for."""
        self._executor.gathered(Nothing, range(parts))
        return {}

    def in_order(self, parts: int) -> dict[str, Any]:
        """Empty parts, each with a result."""
        return {"digest": _digest(repr(list(self._executor.in_order(nothing, range(parts)))))}

    def _data(self, samples: int) -> Batches:
        inputs = self._graph.inputs
        data = load_dataset(self._described, {x.name: x.type for x in inputs}, "data.calibration").first(samples)
        return Batches(partial(data.batches, 16)(), inputs, {}, total=data.size, dataset=data)


def _digest(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]


def cpu_seconds() -> float:
    """Those that this process and those that it has started took so far."""
    return sum(sum(process.cpu_times()[:2]) for process in _processes())


def _processes() -> list[psutil.Process]:
    own = psutil.Process()
    return [own, *own.children(recursive=True)]


@contextmanager
def watching() -> Iterator[dict[str, float]]:
    """The peaks of resident memory while the block runs: of this process, and of the largest that it has started."""
    found, over = {"own_mib": 0.0, "worker_mib": 0.0}, threading.Event()
    watched = _processes()  # found once: looking through all processes takes long

    def look() -> None:
        own, *others = (process.memory_info().rss / 2**20 for process in watched)
        found["own_mib"] = max(found["own_mib"], own)
        found["worker_mib"] = max(found["worker_mib"], *others, 0.0)

    def watch() -> None:
        while not over.wait(LOOK):
            look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        over.set()
        watcher.join()
        look()


def measured(task: Callable[[int], dict[str, Any]], count: int) -> dict[str, Any]:
    """What a task gives, with its seconds, those of all processes' CPU, and their memory."""
    with watching() as peaks:
        used, started = cpu_seconds(), time.perf_counter()
        found = task(count)
        taken = {"seconds": time.perf_counter() - started, "cpu_seconds": cpu_seconds() - used}
    return {**found, **taken, **peaks}


def main() -> None:
    processes, folder = int(sys.argv[1]), Path(sys.argv[2])
    # As the command `mrt` does.
    os.environ.setdefault("TVM_NUM_THREADS", str(cores()))
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    started = time.perf_counter()
    with opened(ClusterConfig(processes=processes) if processes else None) as executor:
        print(json.dumps({"seconds": time.perf_counter() - started}), flush=True)
        tasks = Tasks(folder, executor)
        for line in sys.stdin:
            task, count = line.split()
            print(json.dumps(measured(getattr(tasks, task), int(count))), flush=True)


if __name__ == "__main__":
    main()
