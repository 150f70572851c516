"""Time and peak memory of every stage for MobileNetV1-0.25, and calibration's memory as samples grow.

    MRT_DATA=/path/to/data python benchmarks/pipeline.py

Every measurement is a process of its own, whose peak is that of its resident memory; the line `imports` is what a
process needs before it does anything.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

STAGES = ("prepare", "calibrate", "quantize", "compile", "evaluate")
SAMPLES = (32, 128, 512)
DISTINCT = 32
BATCH = 16
CONFIG = Path(__file__).resolve().parent / "configs" / "mobilenet_v1_0.25_224.yaml"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs=2, metavar=("TASK", "FOLDER"), help="what a child process does")
    arguments = parser.parse_args()
    if arguments.measure:
        task, folder = arguments.measure
        measure(task, Path(folder))
        return
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        return
    with tempfile.TemporaryDirectory() as folder:
        report(folder)


def why_not() -> str:
    """Why the benchmark cannot run here, or ""."""
    data = os.environ.get("MRT_DATA")
    if not data:
        return "the variable MRT_DATA is not set; it names the folder of models and data"
    needed = [Path(data) / "datasets.py", Path(data) / "models" / "onnx" / f"{CONFIG.stem}.onnx"]
    return next((f"{path} does not exist" for path in needed if not path.is_file()), "")


def report(folder: str) -> None:
    """Runs every measurement and prints it."""
    print(f"{CONFIG.stem}, {os.cpu_count()} processors")
    print(f"{'':24}{'seconds':>10}{'peak MiB':>10}")
    for task in ("imports", *STAGES):
        print_row(task, run_child(task, folder))
    run_child("samples", folder)
    for count in SAMPLES:
        print_row(f"calibrate {count} samples", run_child(str(count), folder))


def print_row(name: str, found: dict[str, float]) -> None:
    print(f"{name:24}{found['seconds']:10.2f}{found['peak_mib']:10.0f}", flush=True)


def run_child(task: str, folder: str) -> dict[str, float]:
    """What a child process of this file measures; ends the benchmark with the child's message if it fails."""
    child = subprocess.run([sys.executable, __file__, "--measure", task, folder], capture_output=True, text=True)
    if child.returncode:
        sys.exit(f"{task} failed:\n{child.stderr}")
    measured: dict[str, float] = json.loads(child.stdout.splitlines()[-1])
    return measured


def measure(task: str, folder: Path) -> None:
    """Does one task and prints its seconds, imports left out, and the process's peak memory."""
    from mrt.config import load_config
    from mrt.pipeline import run_pipeline

    config = load_config(CONFIG)
    started = time.perf_counter()
    if task in STAGES:
        run_pipeline(config, task, task, folder)
    elif task == "samples":
        keep_samples(folder)
    elif task.isdigit():
        calibrate_cyclically(folder, int(task))
    seconds = time.perf_counter() - started
    # Linux counts in KiB, macOS in bytes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    print(json.dumps({"seconds": seconds, "peak_mib": peak}))


def keep_samples(folder: Path) -> None:
    """Saves a few samples, so that what is measured later does not hold the whole dataset."""
    import numpy as np

    from mrt.config import load_config
    from mrt.datasets import load_dataset
    from mrt.frontend import load_model

    config = load_config(CONFIG)
    graph = load_model(config.model.path)
    if config.data.calibration is None:
        sys.exit(f"{CONFIG} has no data.calibration")
    types = {symbol.name: symbol.type for symbol in graph.inputs}
    data = load_dataset(config.data.calibration, types, "data.calibration").first(DISTINCT)
    np.savez(folder / "samples.npz", **next(data.batches(DISTINCT)))


def calibrate_cyclically(folder: Path, count: int) -> None:
    """Calibrates the prepared graph on `count` samples, the kept ones over and over."""
    import numpy as np

    from mrt.backend import TvmRunner
    from mrt.calibration import CalibrationConfig, Needs, calibrate
    from mrt.quantization.plan.make import observed_tensors
    from mrt.symbol import Array
    from mrt.symbol.files import read_graph

    graph = read_graph(folder / "stages/prepare/graph.json", folder / "stages/prepare/params.safetensors")
    with np.load(folder / "samples.npz") as file:
        kept = dict(file)

    def batches() -> Iterator[dict[str, Array]]:
        while True:
            for start in range(0, DISTINCT, BATCH):
                yield {name: array[start : start + BATCH] for name, array in kept.items()}

    calibrate(
        graph,
        islice(batches(), count // BATCH),
        Needs(observed_tensors(graph)),
        CalibrationConfig(batch_size=BATCH),
        TvmRunner(),
    )


if __name__ == "__main__":
    main()
