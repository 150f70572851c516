"""The networks whose integers are compared on every engine: where they are, what feeds them, how they are quantized."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

import mrt
from mrt.config import load_config
from mrt.symbol import Array, TensorType

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = "digits"
CALIBRATION = 64
"""Samples that calibrate a network, and the batch in which they are read."""
BATCH = 16
SEED = 0
"""Of the inputs of networks without data."""


@dataclass(frozen=True)
class Network:
    """A network's file. name: its format and what it is called; data: what `datasets.py` calls the data it reads."""

    name: str
    path: Path
    data: str | None

    @property
    def config(self) -> Path:
        """The configuration of this network, which need not exist."""
        folder = ROOT if self.name == EXAMPLE else ROOT / "benchmarks"
        return folder / "configs" / f"{self.name.removeprefix('onnx/')}.yaml"


PLACES = {
    "onnx": "models/onnx/*.onnx",
    "tflite": "models/tflite/*.tflite",
    "mxnet": "mxnet/*/*-symbol.json",
    "relay": "relay/*/model.relay",
}
"""Where networks lie in the folder of models and data, by format."""

DATA = {
    "kws_": "kws_dscnn",
    "kwt1": "kwt1_speechcommands12",
    "mlperf_resnet8": "mlperf_resnet8_cifar10",
    "resnet20_cifar10": "resnet20_cifar10",
    "cifar_resnet20": "cifar_resnet20_v1",
    "mobilenet_v1_0.25_224": "mobilenet_v1_0.25_224",
    "lenet_toy": "lenet_toy",
}
"""The data of networks by how their names begin; the others are given random inputs."""

REFUSED = {
    "relay/kws_dscnn_relayquant": "these operators have no integer form: Cast",
    "relay/resnet20_cifar10_dynamic": "dynamic axis",
}
"""What is said of networks that cannot be quantized: one that Relay quantized already, one of unknown shapes."""


def networks(folder: Path | None) -> Iterator[Network]:
    """The embedded example and all networks below `folder`, by format and name."""
    yield Network(EXAMPLE, ROOT / "examples" / "digits" / "digits.onnx", EXAMPLE)
    if folder is None:
        return
    for kind, pattern in PLACES.items():
        for path in sorted(folder.glob(pattern)):
            own = path.stem if path.parent.name == kind else path.parent.name
            data = next((data for start, data in DATA.items() if own.startswith(start)), None)
            yield Network(f"{kind}/{own}", path, data)


def save_model(network: Network, folder: Path, count: int) -> None:
    """Quantizes a network and saves it in `folder`, with `count` inputs as integers.

    An ONNX network with a configuration is quantized as that says, the others as is done by default.
    """
    fixture = network.path.parent / "io.npz"
    graph = mrt.load_model(network.path, shapes=_shapes(fixture) if network.path.suffix == ".json" else None)
    types = {symbol.name: symbol.type for symbol in graph.inputs}
    calibration = _samples(network, types, "calibration", CALIBRATION)
    batches = [{n: x[start : start + BATCH] for n, x in calibration.items()} for start in range(0, CALIBRATION, BATCH)]
    options = ()
    if network.config.is_file():
        config = load_config(network.config)
        options = (config.quantize, config.calibrate, config.prepare)
    model = mrt.quantize(graph, batches, *options)
    model.save(folder)
    np.savez(folder / INPUTS, **model.quantize_inputs(_samples(network, types, "test", count)))


INPUTS = "inputs.npz"


def _shapes(fixture: Path) -> dict[str, tuple[int, ...]]:
    """The inputs' shapes by name, of a fixture whose arrays have the samples as axis 0."""
    with np.load(fixture) as arrays:
        return {name[3:]: arrays[name].shape[1:] for name in arrays.files if name.startswith("in_")}


def _samples(network: Network, types: Mapping[str, TensorType], split: str, count: int) -> dict[str, Array]:
    """`count` samples by input name: the network's data, or such as are drawn from the normal distribution."""
    if network.data is None:
        random = np.random.default_rng([SEED, split == "test"])
        return {name: random.normal(size=(count, *type.shape[1:])).astype(type.dtype) for name, type in types.items()}
    ((name, type),) = types.items()
    return {name: arranged(_data(network.data, split, count), type.shape[1:])}


@lru_cache(maxsize=4)
def _data(name: str, split: str, count: int) -> Array:
    """The first samples of a split, axis 0 the samples."""
    if name == EXAMPLE:
        with np.load(ROOT / "examples" / "digits" / "data.npz") as arrays:
            return (arrays[f"x_{split}"][:count] / 16).astype(np.float32)
    spec = importlib.util.spec_from_file_location("datasets", Path(os.environ["MRT_DATA"]) / "datasets.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return np.array(module.load(name, split)[0][:count])


def arranged(x: Array, shape: tuple[int, ...]) -> Array:
    """Samples of channels first as a network takes them that wants `shape`: channels last, or in one row."""
    if x.shape[1:] == shape:
        return x
    last = np.moveaxis(x, 1, -1)
    return np.ascontiguousarray(last if last.shape[1:] == shape else last.reshape(len(x), *shape))
