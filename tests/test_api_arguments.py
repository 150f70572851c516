"""Whatever a caller gives to the public functions, what comes out is an MRTError on one line, soon."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mrt
from mrt.errors import CompilationError, GraphError, ModelFileError, MRTError
from mrt.paths import as_path
from mrt.symbol import Graph, GraphBuilder, NumpyRunner, TensorType
from mrt.symbol.operators.linear import FullyConnected
from mrt.symbol.rebatch import MOST_SAMPLES

RNG = np.random.default_rng(13)
DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"
RELAY = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(1, 3), float32]) { nn.relu(%x) }'
MXNET = '{"nodes": [{"op": "null", "name": "x", "inputs": []}], "arg_nodes": [0], "heads": [[0, 0, 0]]}'


class BytesPath:
    def __fspath__(self) -> bytes:
        return b"\xff"


NO_PATHS: list[Any] = [
    5,
    -1,
    0,
    1.5,
    True,
    float("nan"),
    10**30,
    -(10**5000),
    b"",
    b"abc",
    "",
    "a\0b",
    "\ud800",
    "x" * 5000,
    [],
    [1, 2],
    (),
    {5: "x"},
    {"x": None},
    {"x": [1, -1]},
    object(),
    int,
    lambda: None,
    np.zeros(3),
    np.int64(3),
    BytesPath(),
]
NO_BATCHES = [value for value in NO_PATHS if type(value) not in (int, np.int64) or not 1 <= value <= MOST_SAMPLES] + [
    MOST_SAMPLES + 1
]


@pytest.fixture
def odd_paths(tmp_path: Path) -> list[Any]:
    """A folder, what is not there, a pipe, a device, and files that are no models whatever they are called."""
    os.mkfifo(tmp_path / "pipe")
    names = ["empty", "text.txt", "damaged.onnx", "t.tflite", "ir.xml", "a-symbol.json", "z.pt2", "m.so", "c.relay"]
    contents = [b"", b"hi", b"garbage" * 9, b"x", b"<net ", b"{}", b"PK\x03\x04", b"\x7fELF" + b"x" * 99, b"def @main"]
    for name, content in zip(names, contents, strict=True):
        (tmp_path / name).write_bytes(content)
    paths = [tmp_path / name for name in (*names, "none", "none/x", "pipe")]
    return [tmp_path, str(tmp_path), "/dev/zero", *paths]


@pytest.fixture(scope="module")
def graph() -> Graph:
    builder = GraphBuilder()
    x = builder.input("x", TensorType((1, 8)))
    weight = builder.parameter("weight", RNG.standard_normal((4, 8)).astype(np.float32))
    return builder.graph([builder.apply(FullyConnected(num_hidden=4, no_bias=True), [x, weight], "y")])


@pytest.fixture(scope="module")
def model(graph: Graph) -> mrt.QuantizedModel:
    return mrt.quantize(graph, [RNG.standard_normal((9, 8))], runner=NumpyRunner())


@pytest.fixture(scope="module")
def module(model: mrt.QuantizedModel) -> mrt.Module:
    return model.compile()


def refusals(function: Callable[[Any], object], values: list[Any]) -> list[str]:
    """What is refused, in words; anything but an MRTError is raised."""
    told = []
    for value in values:
        try:
            function(value)
        except MRTError as error:
            told.append(str(error))
    assert all(text and len(text.splitlines()) == 1 and len(text) < 6000 for text in told)
    return told


READERS = {
    "load_model": mrt.load_model,
    "from_onnx": mrt.from_onnx,
    "from_tflite": mrt.from_tflite,
    "from_openvino": mrt.from_openvino,
    "from_torch": mrt.from_torch,
    "from_relay": mrt.from_relay,
    "from_relax": mrt.from_relax,
    "from_mxnet": lambda value: mrt.from_mxnet(value, {}),
    "params of from_mxnet": lambda value: mrt.from_mxnet(MXNET, value, {"x": (1, 3)}),
    "load_module": mrt.load_module,
}


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_model_is_refused(name: str, odd_paths: list[Any]) -> None:
    pytest.importorskip("openvino" if "openvino" in name else "torch" if "torch" in name else "numpy")
    # Who names a pipe to from_onnx has its writer.
    values = NO_PATHS + [path for path in odd_paths if name != "from_onnx" or not str(path).endswith("pipe")]
    assert len(refusals(READERS[name], values)) == len(values)


OPTIONS = {
    "batch": lambda value: mrt.load_model(DIGITS, batch=value),
    "shapes": lambda value: mrt.load_model(DIGITS, shapes=value),
    "batch_axes": lambda value: mrt.load_model(DIGITS, batch_axes=value),
    "axes of batch_first": lambda value: mrt.batch_first(mrt.load_model(DIGITS), value),
    "shapes of from_mxnet": lambda value: mrt.from_mxnet(MXNET, {}, value),
    "params of from_relay": lambda value: mrt.from_relay(RELAY, value),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_readers_are_checked(name: str) -> None:
    """Of the values one is a batch."""
    assert len(refusals(OPTIONS[name], NO_PATHS)) >= len(NO_PATHS) - 2


METHODS = ["save", "to_onnx", "to_relay", "to_mxnet", "to_c"]


@pytest.mark.parametrize("name", METHODS)
def test_what_is_no_path_is_not_written_to(name: str, model: mrt.QuantizedModel, tmp_path: Path) -> None:
    assert len(refusals(getattr(model, name), NO_PATHS)) == len(NO_PATHS)
    for batch in NO_BATCHES if name != "save" else ():
        with pytest.raises(GraphError, match="batch is"):
            getattr(model, name)(tmp_path / "written", batch)


def test_a_folder_that_does_not_exist_is_named(model: mrt.QuantizedModel, module: mrt.Module, tmp_path: Path) -> None:
    missing = tmp_path / "none" / "model"
    for write in (model.to_onnx, model.to_relay, model.to_mxnet, module.save):
        with pytest.raises(ModelFileError, match="none/model.*No such file"):
            write(missing)
    assert list(tmp_path.iterdir()) == []


def test_what_is_compiled_for_is_checked(model: mrt.QuantizedModel, module: mrt.Module, tmp_path: Path) -> None:
    assert len(refusals(lambda value: model.compile(batch=value), NO_BATCHES)) == len(NO_BATCHES)
    for change in (
        lambda value: model.compile(value),
        lambda value: model.compile(tune=value),
        lambda value: model.compile(database=value),
        lambda value: model.compile(report=value),
        lambda value: model.to_c(tmp_path, name=value),
        module.save,
    ):
        assert len(refusals(change, NO_PATHS)) == len(NO_PATHS)


def test_what_is_no_data_is_refused(graph: Graph, model: mrt.QuantizedModel, module: mrt.Module) -> None:
    calls: list[Callable[[Any], object]] = [model.quantize_inputs, module, module.run_integer]
    calls += [lambda value, call=call: call({"x": value}) for call in (*calls, graph.evaluate)]
    calls += [graph.evaluate, model.dequantize_outputs, lambda value: model.dequantize_outputs([value])]
    for call in calls:
        assert len(refusals(call, NO_PATHS)) == len(NO_PATHS)


@pytest.mark.parametrize("argument", ["graph", "batches", "quantization", "calibration", "preparation", "runner"])
def test_arguments_of_quantize_are_checked(argument: str, graph: Graph) -> None:
    given = {"graph": graph, "batches": RNG.standard_normal((3, 8)), "runner": NumpyRunner()}
    assert len(refusals(lambda value: mrt.quantize(**{**given, argument: value}), NO_PATHS)) == len(NO_PATHS)


def test_memory_that_cannot_be_had_is_told(model: mrt.QuantizedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    made = model.compile(batch=7)

    def refused(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("mrt.runtime.device.Worker", refused)
    with pytest.raises(CompilationError, match="not the memory to run 7 samples at once.*smaller batch"):
        made(np.zeros((1, 8), np.float32))


def test_paths_are_what_the_system_takes(tmp_path: Path) -> None:
    for good in (tmp_path, str(tmp_path / "none"), tmp_path / "none" / "below"):
        assert as_path(good, "path") == Path(good)
    os.mkfifo(tmp_path / "pipe")
    assert as_path(tmp_path / "pipe", "path") == tmp_path / "pipe"
    with pytest.raises(ModelFileError, match=r"path is .*pipe, a pipe, socket or device"):
        as_path(tmp_path / "pipe", "path", to_read=True)
