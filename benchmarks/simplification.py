"""What simplifying chains gives: operators and latency of integer networks as expanded and as simplified.

    python benchmarks/simplification.py
    python benchmarks/simplification.py --configs benchmarks/configs/kws_dscnn.yaml --samples 64

Each network is prepared, calibrated and quantized as its configuration says; its chains are left as they are, or
simplified.
Both are compiled for one thread and measured in turns; milliseconds are medians of calls of one sample.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from command_line import Parser, listed, whole
from in_turns import machine, row

from mrt.backend import TvmRunner
from mrt.calibration import Needs, calibrate
from mrt.config import load_config
from mrt.datasets import load_dataset
from mrt.frontend import load_model
from mrt.model import QuantizedModel, assemble
from mrt.preparation import prepare
from mrt.quantization.expand import expand_graph
from mrt.quantization.integer.simplified import simplified
from mrt.quantization.plan.make import observed_tensors
from mrt.runtime import Module

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = [
    ROOT / "benchmarks" / "configs" / f"{name}.yaml"
    for name in ("resnet20_cifar10", "mobilenet_v1_0.25_224", "kws_dscnn")
]
COLUMNS = ("network", "operators", "simplified", "ms", "ms simplified")
AS_EXPANDED, SIMPLIFIED = "as expanded", "simplified"


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--configs", type=listed(Path), default=CONFIGS, help="separated by commas; three networks")
    parser.add_argument("--samples", type=whole(1), default=128, help="of the calibration data: 128")
    parser.add_argument("--calls", type=whole(1), default=300, help="of each module: 300")
    arguments = parser.parse_args()
    print(f"{machine()}\n\n{row(COLUMNS)}\n{row(['---'] * len(COLUMNS))}", flush=True)
    for path in arguments.configs:
        models = quantized(path, arguments.samples)
        print(line(path.stem, models, latencies(models, arguments.calls)), flush=True)
        for note in models[SIMPLIFIED].notes:
            print(f"  {note}")


def quantized(path: Path, samples: int) -> dict[str, QuantizedModel]:
    """The network of a configuration in integers, its chains as they were expanded and simplified."""
    config = load_config(path)
    if config.data.calibration is None:
        raise SystemExit(f"{path}: data.calibration is missing")
    network = load_model(config.model.path, shapes=config.model.shapes)
    prepared = prepare(network, config.prepare)
    data = load_dataset(config.data.calibration, {s.name: s.type for s in network.inputs}, "data.calibration")
    batches = data.first(samples).batches(config.calibrate.batch_size)
    found = calibrate(prepared.graph, batches, Needs(observed_tensors(prepared.graph)), config.calibrate, TvmRunner())
    integer = expand_graph(prepared.graph, found.ranges, config.quantize)
    return {
        name: assemble(each, prepared.postprocess, found.ranges)
        for name, each in ((AS_EXPANDED, integer), (SIMPLIFIED, simplified(integer)))
    }


def latencies(models: Mapping[str, QuantizedModel], calls: int) -> dict[str, float]:
    """The median milliseconds of a call of each model, measured in turns on the same integers."""
    modules: dict[str, Module] = {name: model.compile({"kind": "llvm", "threads": 1}) for name, model in models.items()}
    random = np.random.default_rng(0)
    feeds = {
        entry.name: random.integers(entry.lo, entry.hi, entry.shape, endpoint=True).astype(entry.dtype)
        for entry in models[SIMPLIFIED].inputs
    }
    seconds: dict[str, list[float]] = {name: [] for name in modules}
    for _ in range(calls):
        for name, module in modules.items():
            started = time.perf_counter()
            module.run_integer(feeds)
            seconds[name].append(time.perf_counter() - started)
    return {name: 1e3 * float(np.median(found)) for name, found in seconds.items()}


def line(network: str, models: Mapping[str, QuantizedModel], milliseconds: Mapping[str, float]) -> str:
    """The table's row of one network."""
    names = (AS_EXPANDED, SIMPLIFIED)
    counts = [str(len(models[name].graph.operators)) for name in names]
    return row([network, *counts, *(f"{milliseconds[name]:.3f}" for name in names)])


if __name__ == "__main__":
    main()
