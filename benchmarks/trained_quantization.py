"""Networks that NNCF and ONNX Runtime quantized: their integers here, without calibration, against their own engine.

    MRT_DATA=/path/to/data python benchmarks/trained_quantization.py
    MRT_DATA=/path/to/data python benchmarks/trained_quantization.py --networks kws_dscnn --forms QDQ --json out.json

Each network is quantized by its tool on calibration data, in one form: an OpenVINO IR of NNCF, or an ONNX file of ONNX
Runtime as QDQ or QOperator. It is read and made integers with what it says itself, and both run on all test data.
`equal` is the share of equal integers of the last quantized tensor before a softmax, `within 1` that of integers that
differ by one step at most. Latencies are medians in milliseconds of one sample and one thread, measured in turns.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from command_line import Parser, add_turns, listed, one_of, whole, work_folder
from in_turns import ChildError, Launch, machine, measure, row, version_of
from makers import (
    CALIBRATION_FILE,
    IR,
    MODULE,
    NETWORK,
    TEST,
    TEST_FILE,
    quantize_with_nncf,
    quantize_with_onnx_runtime,
)

import mrt
from mrt.config import load_config
from mrt.datasets import Dataset, load_dataset
from mrt.errors import MRTError
from mrt.evaluation import Comparison, Measured, compare
from mrt.symbol import Array, Graph, Symbol
from mrt.symbol.operators.fake_quantize import FakeQuantize
from mrt.symbol.operators.integer import Dequantize, Quantize
from mrt.symbol.operators.normalization import Softmax

CONFIGS = Path(__file__).resolve().parent / "configs"
NETWORKS = ("resnet20_cifar10", "mobilenet_v1_0.25_224", "kws_dscnn")
CALIBRATION = 100
"""Samples that the tools calibrate with."""
BATCH = 50
"""Samples that are fetched at once; no figure depends on it."""
THREADS = 1
TARGET = {"mcpu": "native", "threads": THREADS}
SAFE = ("avx_vnni yes", "avx512_vnni yes", "amx_int8 yes")
"""Of the machine: instructions that add up products of uint8 and int8 without saturating pairs of them at 16 bits."""
COLUMNS = (
    *("network", "form", "samples", "top-1, own engine", "top-1", "agreement", "equal", "within 1"),
    *("operators", "ms", "ms, own engine"),
)
Engine = Callable[[Array], Sequence[Array]]
"""From a batch of one sample to all outputs."""


# Engines


def run_onnx_runtime(path: Path, tensor: str) -> Engine:
    """An ONNX file whose last output is the value `tensor`."""
    import onnx
    import onnxruntime

    model = onnx.load(path)
    if tensor not in {output.name for output in model.graph.output}:
        model.graph.output.append(onnx.ValueInfoProto(name=tensor))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    names = [model.graph.output[0].name, tensor]
    return lambda x: [np.asarray(output) for output in session.run(names, {given.name: x})]


def run_openvino(path: Path, tensor: str) -> Engine:
    """An IR whose last output is what the operator called `tensor` gives."""
    import openvino

    model = openvino.Core().read_model(path)
    (found,) = (operator for operator in model.get_ops() if operator.get_friendly_name() == tensor)
    model.add_outputs(found.output(0))
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": THREADS}
    compiled = openvino.Core().compile_model(model, "CPU", settings)

    def run(x: Array) -> Sequence[Array]:
        outputs = compiled([x])
        return [np.array(outputs[index]) for index in (0, 1)]

    return run


@dataclass(frozen=True)
class Form:
    """How a tool writes a quantized network, and the engine that runs it.

    make: fills a folder from that of the float network. engine: as `peers.py` calls it, with `arguments` for a folder.
    """

    name: str
    make: Callable[[Path, str], None]
    file: str
    run: Callable[[Path, str], Engine]
    engine: str
    arguments: Callable[[Path], Mapping[str, Any]]
    needs: tuple[str, ...]


FORMS = {
    form.name: form
    for form in (
        Form(
            "NNCF",
            quantize_with_nncf,
            IR,
            run_openvino,
            "openvino",
            lambda folder: {"model": folder, "file": IR},
            ("nncf", "openvino"),
        ),
        *(
            Form(
                name,
                partial(quantize_with_onnx_runtime, form=name),
                NETWORK,
                run_onnx_runtime,
                "onnxruntime",
                lambda folder: {"network": folder},
                ("onnxruntime", "sympy"),
            )
            for name in ("QDQ", "QOperator")
        ),
    )
}


# The last quantized tensor


@dataclass(frozen=True)
class Probe:
    """The last tensor before a softmax that a network rounds: how its engine calls it, and the graph up to it.

    step: what one integer stands for, where the engine gives real numbers. dequantize: the integers that the engine
    gives as real numbers, where it gives them.
    """

    tensor: str
    graph: Graph
    step: Array
    dequantize: Callable[[Array], Array]


def probe_of(graph: Graph) -> Probe:
    """The probe of a float graph; SystemExit where it rounds nothing."""
    last = None
    behind: set[Symbol] = set()
    for symbol in graph.operators:
        if isinstance(symbol.operator, Softmax) or not behind.isdisjoint(symbol.inputs):
            behind.add(symbol)
        elif isinstance(symbol.operator, (FakeQuantize, Quantize)) and graph.value(symbol.inputs[0]) is None:
            last = symbol
    if last is None:
        sys.exit("the network rounds no tensor")
    values = [graph.value(source) for source in last.inputs[1:]]
    if isinstance(last.operator, FakeQuantize):
        low, high = (np.asarray(value, np.float64) for value in values[2:])
        step = (high - low) / (last.operator.levels - 1)
        return Probe(last.name, _cut(graph, last), step, lambda integers: integers)
    end = last
    while not isinstance(end.operator, Dequantize):
        end = graph.consumers[end][0]
    scale, zero = (np.asarray(graph.value(source), np.float64) for source in end.inputs[1:])
    return Probe(last.name, _cut(graph, end), scale, lambda integers: (integers.reshape(end.shape) - zero) * scale)


def _cut(graph: Graph, end: Symbol) -> Graph:
    return Graph(graph.inputs, (end,), graph.parameters)


# Figures


@dataclass(frozen=True)
class Outcome:
    """What was found of one network in one form. milliseconds: of ours and of the engine, None where it failed."""

    network: str
    form: str
    comparison: Comparison
    equal: float
    within_one: float
    operators: int
    milliseconds: tuple[float | None, float | None] = (None, None)

    def line(self) -> str:
        found = self.comparison
        shares = (found.float_top1, found.integer_top1, found.agreement)
        top = ["-" if share.value is None else f"{100 * share.value:.2f} %" for share in shares]
        equal = [f"{100 * share:.3f} %" for share in (self.equal, self.within_one)]
        times = ["-" if time is None else f"{time:.2f}" for time in self.milliseconds]
        return row([self.network, self.form, str(found.samples), *top, *equal, str(self.operators), *times])

    def facts(self) -> dict[str, Any]:
        """A row of the JSON file."""
        found, (own, engine) = self.comparison, self.milliseconds
        return {
            **{"network": self.network, "form": self.form, "samples": found.samples},
            **{"engine_top1": found.float_top1.value, "top1": found.integer_top1.value},
            **{"agreement": found.agreement.value, "equal": self.equal, "within_one": self.within_one},
            **{"operators": self.operators, "ms": own, "engine_ms": engine},
        }


def score(network: str, form: Form, folder: Path, test: Dataset, arguments: Namespace) -> Outcome:
    """Runs one network in one form, on its engine and here; MRTError where it has no integer form."""
    graph = mrt.load_model(folder / form.file)
    probe = probe_of(graph)
    model, part = mrt.quantize(graph), mrt.quantize(probe.graph)
    module, partial_module = model.compile(TARGET), part.compile(TARGET)
    engine = form.run(folder / form.file, probe.tensor)
    differences: list[Array] = []

    def reference(feeds: Mapping[str, Array]) -> Measured:
        (samples,) = feeds.values()
        scores, tensors = zip(*(engine(sample[None]) for sample in samples), strict=True)
        own = partial_module(samples)
        expected = np.concatenate([probe.dequantize(tensor.astype(np.float64)) for tensor in tensors])
        found = np.asarray(own[0] if isinstance(own, list) else own, np.float64)
        differences.append(np.rint(np.abs(found - expected.reshape(found.shape)) / probe.step))
        return _as_measured(np.concatenate(scores))

    def measured(feeds: Mapping[str, Array]) -> Measured:
        (samples,) = feeds.values()
        own = module(samples)
        return _as_measured(own[0] if isinstance(own, list) else own)

    comparison = compare(test.batches(BATCH), test.labels, reference, measured)
    steps = np.concatenate([part.reshape(-1) for part in differences])
    times = latency(form, folder, module, arguments)
    return Outcome(
        network,
        form.name,
        comparison,
        *(float((steps <= most).mean()) for most in (0, 1)),
        len(model.graph.operators),
        times,
    )


def _as_measured(scores: Array) -> Measured:
    return Measured([scores], [scores])


def latency(form: Form, folder: Path, module: mrt.Module, arguments: Namespace) -> tuple[float | None, float | None]:
    """Milliseconds of one sample here and by the engine, in turns; None of one that fails."""
    module.save(folder / MODULE)
    starts = {
        "own": partial(Launch, "mrt-int8", {"module": folder}, folder, THREADS, 1),
        "engine": partial(Launch, form.engine, form.arguments(folder), folder, THREADS, 1),
    }
    found, failed = measure(starts, arguments.rounds, arguments.seconds)
    for name, error in failed.items():
        print(f"{folder.name}, {name}: {error}", file=sys.stderr)
    own, engine = (found[name].milliseconds if name in found else None for name in starts)
    return own, engine


# The run


def made(network: str, form: Form, work: Path, data: Path) -> Path:
    """The folder of a network in one form, made where it is missing, with the samples that latency is measured on."""
    folder = work / f"{network}-{form.name}"
    if (folder / TEST_FILE).is_file():
        return folder
    source = work / network
    if not (source / TEST_FILE).is_file():
        source.mkdir(parents=True, exist_ok=True)
        shutil.copy(data / "models" / "onnx" / f"{network}.onnx", source / NETWORK)
        for split, file, count in (("calibration", CALIBRATION_FILE, CALIBRATION), ("test", TEST_FILE, TEST)):
            np.savez(source / file, **next(dataset(network, split).first(count).batches(count)))
    folder.mkdir(exist_ok=True)
    form.make(folder, str(source))
    shutil.copy(source / TEST_FILE, folder / TEST_FILE)
    return folder


def dataset(network: str, split: str) -> Dataset:
    """The calibration or test data that the network's configuration names."""
    config = load_config(CONFIGS / f"{network}.yaml")
    described = getattr(config.data, split)
    if described is None:
        sys.exit(f"{network}.yaml has no data.{split}")
    types = {symbol.name: symbol.type for symbol in mrt.load_model(config.model.path).inputs}
    return load_dataset(described, types, f"data.{split}")


def main() -> None:
    arguments = _parser().parse_args()
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        return
    with work_folder(arguments.work) as work:
        sys.exit(measure_all(arguments, work))


def why_not() -> str:
    """Why the benchmark cannot run here, or ""."""
    if not os.environ.get("MRT_DATA"):
        return "the variable MRT_DATA is not set; it names the folder of models and data"
    if not any(flag in machine() for flag in SAFE):
        return (
            "this processor saturates pairs of products of uint8 and int8, so that the engines differ from the networks"
        )
    return ""


def _parser() -> Parser:
    parser = Parser(__doc__)
    parser.add_argument("--networks", type=listed(one_of(NETWORKS)), default=list(NETWORKS), help="separated by commas")
    parser.add_argument("--forms", type=listed(one_of(list(FORMS))), default=list(FORMS), help="NNCF,QDQ,QOperator")
    parser.add_argument("--samples", type=whole(1), help="how many test samples are scored; by default all")
    add_turns(parser)
    return parser


def measure_all(arguments: Namespace, work: Path) -> int:
    """Prints the table as it is found; the exit status."""
    forms = [FORMS[name] for name in arguments.forms]
    lacking = {form.name: [name for name in form.needs if find_spec(name) is None] for form in forms}
    for name, modules in lacking.items():
        if modules:
            print(f"{name}: left out, {' and '.join(modules)} not installed; install the extra [benchmarks]")
    versions = ", ".join(f"{name} {version_of(name)}" for name in ("nncf", "openvino", "onnxruntime"))
    print(f"{machine()}\n{versions}\n\n{row(COLUMNS)}\n{row(['---'] * len(COLUMNS))}", flush=True)
    outcomes: list[Outcome] = []
    failed = False
    for network, form in _cases(arguments.networks, [form for form in forms if not lacking[form.name]]):
        try:
            folder = made(network, form, work, Path(os.environ["MRT_DATA"]))
            outcome = score(network, form, folder, dataset(network, "test").first(arguments.samples), arguments)
        except (MRTError, ChildError) as error:
            print(f"{network}, {form.name}: {error}", file=sys.stderr)
            failed = True
            continue
        outcomes.append(outcome)
        print(outcome.line(), flush=True)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps({"rows": [each.facts() for each in outcomes]}, indent=1) + "\n")
    return 1 if failed else 0


def _cases(networks: Sequence[str], forms: Sequence[Form]) -> Iterator[tuple[str, Form]]:
    for network in networks:
        for form in forms:
            yield network, form


if __name__ == "__main__":
    main()
