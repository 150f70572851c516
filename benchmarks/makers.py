"""What benchmarks make files by: networks, their samples, and what quantizers make of them."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from instruction_sets import FEATURES
from numpy.typing import NDArray

Array = NDArray[Any]
Samples = dict[str, Array]
"""Arrays by the network's input names, axis 0 the samples."""

CALIBRATION, TEST = 32, 16
"""Of a seeded network: samples that quantizers are given, and others that outputs are compared on."""
CALIBRATION_SEED, TEST_SEED = 1, 2


@dataclass(frozen=True)
class Maker:
    """A function that makes files in a folder, from arguments that JSON can hold; paths are those of other makers.

    modules: what it imports, before its time is taken. packages: whose versions decide what it makes. sources: files
    and folders that do.
    """

    make: Callable[..., None]
    modules: tuple[str, ...]
    packages: tuple[str, ...]
    sources: tuple[Path, ...]


def make_network(folder: Path, name: str, spread: float) -> None:
    """A seeded network, the samples that calibrate it and those that it is compared on."""
    import onnx
    from seeded_networks import NETWORKS

    model = NETWORKS[name](spread)
    onnx.save(model, folder / NETWORK)
    _save_samples(folder, model)


def take_network(folder: Path, file: str, digest: str) -> None:
    """A network of an ONNX file, with samples of noise.

    digest: of the file's content, so that another content is another network. ValueError where the network is not a
    function of one float tensor whose first axis is the batch.
    """
    import onnx

    model = onnx.load(file)
    _save_samples(folder, model)
    onnx.save(model, folder / NETWORK)


def _save_samples(folder: Path, model: Any) -> None:
    """model: an onnx.ModelProto."""
    from network_builder import samples
    from seeded_networks import the_input

    name, shape = the_input(model)
    for file, count, seed in ((CALIBRATION_FILE, CALIBRATION, CALIBRATION_SEED), (TEST_FILE, TEST, TEST_SEED)):
        np.savez(folder / file, **{name: samples(shape, count, seed)})


def samples_of(path: Path) -> Samples:
    """The samples of a file."""
    with np.load(path) as arrays:
        return dict(arrays)


def one_by_one(samples: Samples) -> Iterator[Samples]:
    """The samples as batches of one; those called `WHOLE` and a name are inputs whose first axis is not the batch."""
    for place in range(len(next(iter(samples.values())))):
        yield {
            name.removeprefix(WHOLE): np.asarray(x[place]) if name.startswith(WHOLE) else x[place : place + 1]
            for name, x in samples.items()
        }


def quantize_with_mrt(
    folder: Path, network: str, options: Mapping[str, Any], calibrate: Mapping[str, Any] | None = None
) -> None:
    """The network in integers, saved and verified.

    options, calibrate: of a QuantizationConfig and of a CalibrationConfig.
    """
    import mrt
    from mrt.calibration import CalibrationConfig

    graph = mrt.load_model(Path(network) / NETWORK)
    config = mrt.QuantizationConfig.model_validate(options)
    calibration = CalibrationConfig.model_validate(calibrate or {})
    mrt.quantize(graph, samples_of(Path(network) / CALIBRATION_FILE), config, calibration).save(folder)
    mrt.verify(folder)


def compile_with_mrt(folder: Path, model: str, threads: int, batch: int, machine: str, isa: str = "native") -> None:
    """The module of an integer network. machine: that it is made for, which is this one. isa: one of `ISA`."""
    import mrt

    mrt.load(model).compile(isa_target(threads, isa), batch, cache=False).save(folder / MODULE)


def quantize_with_onnx_runtime(
    folder: Path,
    network: str,
    form: str = "QDQ",
    calibration: str = "MinMax",
    symmetric: bool = False,
    weight_bits: int = 8,
) -> None:
    """Activations of 8 bits, signed integers for weights, with one scale per output channel.

    form: QDQ, operators between QuantizeLinear and DequantizeLinear, or QOperator, operators on integers.
    calibration: MinMax, Entropy or Percentile. symmetric: of activations.
    """
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Batches(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self._left = one_by_one(samples_of(Path(network) / CALIBRATION_FILE))

        def get_next(self) -> Samples | None:
            return next(self._left, None)

    source, processed = (Path(network) / NETWORK).absolute(), (folder / "processed.onnx").absolute()
    try:
        with _in_a_folder_of_its_own():
            quant_pre_process(source, processed)
    except Exception:  # of many kinds, where its symbolic shapes stop at an operator; those of ONNX are enough
        quant_pre_process(source, processed, skip_symbolic_shape=True)
    quantization.quantize_static(
        processed,
        folder / NETWORK,
        Batches(),
        quant_format=quantization.QuantFormat[form],
        activation_type=quantization.QuantType["QInt8" if symmetric else "QUInt8"],
        weight_type=quantization.QuantType[f"QInt{weight_bits}"],
        per_channel=True,
        calibrate_method=quantization.CalibrationMethod[calibration],
        extra_options={"ActivationSymmetric": symmetric},
    )
    processed.unlink()


@contextmanager
def _in_a_folder_of_its_own() -> Iterator[None]:
    """What is written to the working folder is forgotten, as what ONNX Runtime leaves where symbolic shapes stop."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def quantize_with_nncf(
    folder: Path,
    network: str,
    preset: str | None = None,
    correction: str = "fast",
    transformer: bool = False,
    weight_bits: int = 8,
) -> None:
    """NNCF's post-training quantization; as it is by default, or otherwise.

    preset: performance or mixed. correction: of biases, none, fast or accurate. transformer: as NNCF treats these,
    migrating activations' scales into weights.
    """
    import nncf
    import openvino
    from nncf.quantization.advanced_parameters import QuantizationParameters

    model, samples = _for_nncf(network)
    advanced = nncf.AdvancedQuantizationParameters(disable_bias_correction=correction == "none")
    target = nncf.TargetDevice.ANY
    if weight_bits != 8:  # which only that device's kernels have
        target = nncf.TargetDevice.NPU
        advanced.weights_quantization_params = QuantizationParameters(num_bits=weight_bits)
    quantized = nncf.quantize(
        model,
        nncf.Dataset(samples),
        preset=None if preset is None else nncf.QuantizationPreset(preset),
        target_device=target,
        subset_size=len(samples),
        fast_bias_correction=correction != "accurate",
        model_type=nncf.ModelType.TRANSFORMER if transformer else None,
        advanced_parameters=advanced,
    )
    openvino.save_model(quantized, folder / IR)


def quantize_with_nncf_by_accuracy(folder: Path, network: str, preset: str) -> None:
    """NNCF's quantization that gives operators back to float until top-1 falls by one point at most.

    Top-1 is of the validation samples; the point is NNCF's default.
    """
    import nncf
    import openvino

    model, samples = _for_nncf(network)
    validation, labels = samples_of(Path(network) / VALIDATION_FILE), np.load(Path(network) / VALIDATION_LABELS_FILE)
    pairs = list(zip(one_by_one(validation), labels, strict=True))

    def top1(compiled: Any, chosen: Iterable[tuple[Samples, int]]) -> tuple[float, list[float]]:
        hits = [float(np.argmax(compiled(feeds)[0]) == label) for feeds, label in chosen]
        return float(np.mean(hits)), hits

    quantized = nncf.quantize_with_accuracy_control(
        model,
        nncf.Dataset(samples),
        nncf.Dataset(pairs, lambda pair: pair[0]),
        top1,
        max_drop=0.01,
        preset=nncf.QuantizationPreset(preset),
        subset_size=len(samples),
    )
    openvino.save_model(quantized, folder / IR)


def _for_nncf(network: str) -> tuple[Any, list[Samples]]:
    """An OpenVINO model of one sample, and the calibration samples."""
    import openvino

    # As read, weights of groups are reshaped in the graph, and NNCF gives scales along the wrong axis of them.
    model = openvino.convert_model(_existing(Path(network), NETWORK, TFLITE))
    samples = list(one_by_one(samples_of(Path(network) / CALIBRATION_FILE)))
    model.reshape({name: list(x.shape) for name, x in samples[0].items()})
    return model, samples


def _existing(folder: Path, *names: str) -> Path:
    """The first of some files that a folder has, or else the first."""
    return next((folder / name for name in names if (folder / name).is_file()), folder / names[0])


def make_case(folder: Path, config: Mapping[str, Any], calibration: int, samples: int | None) -> None:
    """The network of a configuration as ONNX up to its logits, with samples and, where there are any, labels.

    calibration: how many samples calibrate. The labelled ones behind them validate, at most `MOST_VALIDATION`.
    samples: how many are tested; None for all.
    """
    import onnx
    from float_onnx import logits_of, read_float

    import mrt
    from mrt.config import load_config
    from mrt.datasets import load_dataset

    (folder / CONFIG).write_text(json.dumps(config))
    read = load_config(folder / CONFIG)
    model = read_float(read.model.path, read.model.shapes)
    onnx.save(logits_of(model), folder / NETWORK)
    inputs = {symbol.name: symbol.type for symbol in mrt.load_model(folder / NETWORK).inputs}
    known = load_dataset(read.data.calibration, inputs, "data.calibration")
    known = known.first(min(known.size, calibration + MOST_VALIDATION))
    (known_samples,) = known.batches(known.size)
    for file, part in ((CALIBRATION_FILE, slice(calibration)), (VALIDATION_FILE, slice(calibration, None))):
        np.savez(folder / file, **{name: x[part] for name, x in known_samples.items()})
    test = load_dataset(read.data.test, inputs, "data.test").first(samples)
    np.savez(folder / TEST_FILE, **next(test.batches(test.size)))
    for file, labels in (
        (VALIDATION_LABELS_FILE, None if known.labels is None else known.labels[calibration:]),
        (LABELS_FILE, test.labels),
    ):
        if labels is not None and len(labels):
            np.save(folder / file, labels)


def run_float(folder: Path, network: str) -> None:
    """The outputs of the float network, here."""
    import mrt
    from mrt.backend import TvmRunner

    _save_outputs(folder, network, TvmRunner().prepare(mrt.load_model(Path(network) / NETWORK)))


def run_mrt(folder: Path, network: str, model: str) -> None:
    """The outputs of a saved integer network, compiled for this machine."""
    import mrt

    module = mrt.load(model).compile(isa_target(1), cache=False)

    def run(feeds: Samples) -> list[Array]:
        outputs = module(feeds)
        return outputs if isinstance(outputs, list) else [outputs]

    _save_outputs(folder, network, run)


def run_onnx_runtime(folder: Path, network: str, model: str) -> None:
    """The outputs of an ONNX file in a folder."""
    import onnxruntime

    session = onnxruntime.InferenceSession(Path(model) / NETWORK, providers=["CPUExecutionProvider"])
    _save_outputs(folder, network, lambda feeds: session.run(None, feeds))


def run_openvino(folder: Path, network: str, model: str) -> None:
    """The outputs of an IR, or of a TFLite file, in a folder."""
    import openvino

    file = _existing(Path(model), IR, TFLITE)
    compiled = openvino.Core().compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    def run(feeds: Samples) -> list[Array]:
        outputs = compiled(feeds)
        return [np.array(outputs[place]) for place in range(len(compiled.outputs))]

    _save_outputs(folder, network, run)


def _save_outputs(folder: Path, network: str, run: Callable[[Samples], Sequence[Array]]) -> None:
    """All outputs of the test samples, which run one at a time; axis 0 the samples, whatever a network calls it."""
    found = [run(feeds) for feeds in one_by_one(samples_of(Path(network) / TEST_FILE))]
    np.savez(folder / OUTPUTS_FILE, *(np.stack(outputs) for outputs in zip(*found, strict=True)))


TFLITE, WHOLE = "source.tflite", "whole:"
NETWORK, CALIBRATION_FILE, TEST_FILE = "network.onnx", "calibration.npz", "test.npz"
VALIDATION_FILE, VALIDATION_LABELS_FILE, LABELS_FILE = "validation.npz", "validation_labels.npy", "labels.npy"
MODULE, IR, CONFIG, OUTPUTS_FILE = "model.so", "model.xml", "config.yaml", "outputs.npz"
MOST_VALIDATION = 300
OWN = ("mrt.api", "mrt.backend", "mrt.frontend", "mrt.certificate")
MRT_SOURCES = tuple(
    Path(spec.origin).parent for name in ("mrt", "expansions") if (spec := find_spec(name)) and spec.origin
)
OF_MRT = ("numpy", "apache-tvm")
OF_ORT, OF_NNCF = ("onnxruntime",), ("nncf", "openvino")
HERE = Path(__file__).parent
SEEDED = (HERE / "seeded_networks.py", HERE / "network_builder.py")
MAKERS = {
    "network": Maker(make_network, ("onnx",), ("numpy", "onnx"), SEEDED),
    "own-network": Maker(take_network, ("onnx",), ("numpy", "onnx"), SEEDED),
    "mrt-model": Maker(quantize_with_mrt, OWN, OF_MRT, MRT_SOURCES),
    "mrt-module": Maker(compile_with_mrt, OWN, ("apache-tvm",), MRT_SOURCES),
    "ort-int8": Maker(quantize_with_onnx_runtime, ("onnxruntime.quantization",), OF_ORT, ()),
    "openvino-nncf": Maker(quantize_with_nncf, OF_NNCF, OF_NNCF, ()),
    "openvino-nncf-accuracy": Maker(quantize_with_nncf_by_accuracy, OF_NNCF, OF_NNCF, ()),
    "case": Maker(make_case, ("onnx", *OWN), ("numpy", "onnx"), (HERE / "float_onnx.py",)),
    "float-outputs": Maker(run_float, OWN, OF_MRT, MRT_SOURCES),
    "mrt-outputs": Maker(run_mrt, OWN, OF_MRT, MRT_SOURCES),
    "ort-outputs": Maker(run_onnx_runtime, OF_ORT, OF_ORT, ()),
    "openvino-outputs": Maker(run_openvino, ("openvino",), ("openvino",), ()),
}


def isa_target(threads: int, isa: str = "native") -> dict[str, Any]:
    """This machine's CPU, of which `threads` cores are used, as far as one of `ISA` goes."""
    return {"mcpu": "native", "threads": threads} | ({"features": list(FEATURES[isa])} if FEATURES[isa] else {})
