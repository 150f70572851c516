"""Whole files of every format that is read, small ones, which are then damaged."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

import mrt
from mrt.model import QuantizedModel
from mrt.quantization.options import QuantizationConfig
from mrt.symbol import GraphBuilder, Operator, TensorType
from mrt.symbol.operators.activation import Relu, Sigmoid
from mrt.symbol.operators.broadcast import BroadcastAdd
from mrt.symbol.operators.convolution import Convolution
from mrt.symbol.operators.elementwise import ElemwiseAdd
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.operators.normalization import LayerNorm, Softmax
from mrt.symbol.operators.selection import Embedding
from tests.fuzz.case import Limits, Outcome, isolated

ROOT = Path(__file__).parents[2]
FRONTEND = ROOT / "tests" / "frontend"
Files = dict[str, bytes]


@dataclass(frozen=True)
class Example:
    """Files that are read together, and which of them is named to the reader."""

    format: str
    main: str
    files: Files


def examples() -> tuple[Example, ...]:
    """Of every format; made once, in another process, so that no library has threads in this one."""
    return tuple(example for example in _made() if example.format != "model")


def models() -> tuple[Example, ...]:
    """Saved models: a convolution and a table, granularity, a float tail, layer normalisation, given inputs."""
    return tuple(example for example in _made() if example.format == "model")


@cache
def _made() -> tuple[Example, ...]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def make() -> Outcome:
            for maker in (*_MAKERS, _models):
                maker(folder)
            return Outcome()

        made = isolated(make, Limits(600, 1 << 16))
        if made.finding:
            raise RuntimeError(made.finding)
        return tuple(_read(at) for at in sorted(folder.glob("*/*")))


def _read(folder: Path) -> Example:
    (main,) = (folder / "main.txt").read_text().splitlines()
    files = {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.name != "main.txt"}
    return Example(folder.parent.name, main, files)


def _put(folder: Path, format: str, name: str, main: str, files: Mapping[str, bytes]) -> None:
    at = folder / format / name
    at.mkdir(parents=True)
    for file, content in {**files, "main.txt": main.encode()}.items():
        (at / file).write_bytes(content)


def _of_tests() -> None:
    """What tests of readers import of one another lies in their folder."""
    if str(FRONTEND) not in sys.path:
        sys.path.append(str(FRONTEND))


def _onnx(folder: Path) -> None:
    _of_tests()
    import small_onnx_models

    for name, model in small_onnx_models.MODELS.items():
        _put(folder, "onnx", name, "net.onnx", {"net.onnx": model.SerializeToString()})
    digits = (ROOT / "examples" / "digits" / "digits.onnx").read_bytes()
    _put(folder, "onnx", "digits", "net.onnx", {"net.onnx": digits})


def _tflite(folder: Path) -> None:
    _of_tests()
    import test_tflite_hostile

    _put(folder, "tflite", "small", "net.tflite", {"net.tflite": test_tflite_hostile.WHOLE})


def _openvino(folder: Path) -> None:
    _of_tests()
    import test_openvino_hostile

    with tempfile.TemporaryDirectory() as made:
        text, weights = test_openvino_hostile.whole(Path(made))
    _put(folder, "openvino", "small", "net.xml", {"net.xml": text, "net.bin": weights})


def _relay(folder: Path) -> None:
    _of_tests()
    import relay_texts
    import test_relay_hostile

    files = {
        "net.relay": test_relay_hostile.WHOLE.encode(),
        "net.params": relay_texts.parameters(test_relay_hostile.PARAMS),
    }
    _put(folder, "relay", "small", "net.relay", files)


def _mxnet(folder: Path) -> None:
    _of_tests()
    import mxnet_files
    import mxnet_networks

    parameters = mxnet_files.write_params({f"arg:{name}": value for name, value in mxnet_networks.KERNEL.items()})
    files = {"net-symbol.json": mxnet_networks.small().encode(), "net-0000.params": parameters}
    _put(folder, "mxnet", "small", "net-symbol.json", files)


def _torch(folder: Path) -> None:
    _of_tests()
    import torch
    import torch_archives

    dynamic = ({0: torch.export.Dim("batch")},)
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "net.pt2"
        program = torch_archives.export(torch_archives.NETWORK, torch_archives.IMAGES, dynamic_shapes=dynamic)
        torch.export.save(program, path)
        _put(folder, "torch", "small", "net.pt2", {"net.pt2": path.read_bytes()})


def _npz(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        path = Path(made) / "data.npz"
        for name, save in (("plain", np.savez), ("compressed", np.savez_compressed)):
            x = np.arange(48, dtype=np.float32).reshape(4, 3, 2, 2)
            save(path, x=x, y=np.arange(4), text=np.array("ab"))
            _put(folder, "npz", name, "data.npz", {"data.npz": path.read_bytes()})


def _yaml(folder: Path) -> None:
    for path in sorted([*ROOT.glob("configs/*.yaml"), *ROOT.glob("benchmarks/configs/*.yaml")]):
        _put(folder, "yaml", path.stem, "run.yaml", {"run.yaml": path.read_bytes()})


_MAKERS: tuple[Callable[[Path], None], ...] = (_onnx, _tflite, _openvino, _relay, _mxnet, _torch, _npz, _yaml)


def _models(folder: Path) -> None:
    """Each is also an example of the formats that it is exported in, but of ONNX, whose reader divides no integers."""
    for name, model in _quantized().items():
        _put(folder, "model", name, "certificate.json", model.files)
        with tempfile.TemporaryDirectory() as made:
            at = Path(made)
            written = {
                "net.relay": model.to_relay(at / "net.relay"),
                "net-symbol.json": model.to_mxnet(at / "net"),
            }
            for format, (main, paths) in zip(("relay", "mxnet"), written.items(), strict=True):
                _put(folder, format, f"of_{name}", main, {path.name: path.read_bytes() for path in paths})


def _quantized() -> dict[str, QuantizedModel]:
    random = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float32)

    def network(shape: tuple[int, ...], *steps: tuple[Operator, tuple[np.ndarray, ...]]) -> mrt.Graph:
        builder = GraphBuilder()
        symbol = builder.input("x", TensorType(shape))
        for operator, constants in steps:
            symbol = builder.apply(operator, [symbol, *(builder.parameter("w", value) for value in constants)])
        return builder.graph([symbol])

    image = network(
        (1, 2, 5, 5),
        (Convolution((3, 3), 4, no_bias=True), (weights(4, 2, 3, 3),)),
        (BroadcastAdd(), (weights(1, 4, 1, 1),)),
        (Relu(), ()),
        (FullyConnected(3, no_bias=True), (weights(3, 36),)),
        (Softmax(), ()),
    )
    rows = network(
        (1, 6),
        (FullyConnected(5), (weights(5, 6), weights(5))),
        (LayerNorm(), (weights(5), weights(5))),
        (Sigmoid(), ()),
    )
    builder = GraphBuilder()
    tokens = builder.input("tokens", TensorType((1, 4)))
    found = builder.apply(Embedding(6, 3), [tokens, builder.parameter("table", weights(6, 3))])
    text = builder.graph([builder.apply(ElemwiseAdd(), [found, found]), found])
    channels = {"activation": {"quantizer": "affine", "granularity": {"channel": 1}}}
    given = {"inputs": {"tokens": {"dtype": "uint8", "range": [0, 5]}}}

    def quantized(graph: mrt.Graph, **options: object) -> QuantizedModel:
        config = QuantizationConfig.model_validate({"preset": "mrt", **options})
        shape = (8, *graph.inputs[0].shape[1:])
        data = random.integers(0, 6, shape) if "inputs" in options else random.standard_normal(shape)
        return mrt.quantize(graph, data.astype(np.float32), config)

    return {
        "image": quantized(image),
        "channels": quantized(image, **channels),
        "rows": quantized(rows),
        "tokens": quantized(text, **given),
    }
