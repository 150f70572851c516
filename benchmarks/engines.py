"""The same integers on every engine: SHA-256 digests of each network's integer outputs, one row a network.

    MRT_DATA=/path/to/data python benchmarks/engines.py
    MRT_DATA=/path/to/data python benchmarks/engines.py digits 'onnx/*' --inputs 10

Each network is read, quantized and saved. Every engine is a process of its own, with threads of its own, that loads
the saved model, computes the outputs of the same inputs and gives their digest. Exit status 1 unless all are equal.
Without MRT_DATA there is the embedded example alone.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from command_line import Parser, whole

import mrt
from mrt.config import load_config
from mrt.errors import MRTError
from mrt.model import QuantizedModel
from mrt.symbol import Array, Graph, TensorType

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = "digits"
CALIBRATION = 64
"""Samples that calibrate a network, and the batch in which they are read."""
BATCH = 16
SEED = 0
"""Of the inputs of networks without data."""

Feeds = Mapping[str, Array]
Outputs = Sequence[Array]


# Networks


@dataclass(frozen=True)
class Network:
    """A network's file. name: its format and what it is called; data: what `datasets.py` calls the data it reads."""

    name: str
    path: Path
    data: str | None

    @property
    def config(self) -> Path:
        """The configuration of this network, which need not exist."""
        return ROOT / "configs" / f"{self.name.removeprefix('onnx/')}.yaml"


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


# Engines


@dataclass(frozen=True)
class Engine:
    """What computes a model's integers.

    run: from the folder of the saved model, its integer inputs and the number of threads to the outputs, of all
    samples as axis 0.
    absent: why it cannot run on this machine, or "".
    """

    name: str
    run: Callable[[Path, Feeds, int], Outputs]
    threads: int = 1
    absent: Callable[[], str] = str


def by_sample(run: Callable[[Feeds], Outputs], feeds: Feeds) -> list[Array]:
    """The outputs of `run` for one sample after the other, put together."""
    count = len(next(iter(feeds.values())))
    found = [run({name: x[place : place + 1] for name, x in feeds.items()}) for place in range(count)]
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


def evaluate(folder: Path, feeds: Feeds, threads: int) -> Outputs:
    return by_sample(mrt.load(folder).graph.evaluate, feeds)


def compile_and_run(cpu: str, folder: Path, feeds: Feeds, threads: int) -> Outputs:
    """The module for a CPU, which the first process makes and those with other numbers of threads run too."""
    import tvm

    if tvm.runtime.num_threads() != threads:
        raise MRTError(f"TVM runs {tvm.runtime.num_threads()} threads; {threads} are needed")
    made = folder / f"{cpu}.so"
    if not made.is_file():
        mrt.load(folder).compile({"mcpu": cpu, "threads": max(THREADS)}).save(made)
    found = mrt.load_module(made).run_integer(feeds)
    return found if isinstance(found, list) else [found]


def export_to_onnx(
    opened: Callable[[Path, int], Callable[[Feeds], Outputs]], folder: Path, feeds: Feeds, threads: int
) -> Outputs:
    path = folder / "model.onnx"
    mrt.load(folder).to_onnx(path)
    return by_sample(opened(path, threads), feeds)


def onnx_runtime(path: Path, threads: int) -> Callable[[Feeds], Outputs]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    return lambda feeds: session.run(None, dict(feeds))


def onnx_reference(path: Path, threads: int) -> Callable[[Feeds], Outputs]:
    import onnx
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(onnx.load(path))
    return lambda feeds: evaluator.run(None, dict(feeds))


def export_to_c(folder: Path, feeds: Feeds, threads: int) -> Outputs:
    model = mrt.load(folder)
    sources = [path for path in model.to_c(folder / "c") if path.suffix == ".c"]
    library = folder / "c" / "model.so"
    subprocess.run([C_COMPILER, *C_FLAGS, *sources, "-o", library], check=True)
    return by_sample(partial(_call, ctypes.CDLL(str(library)).model_run, model), feeds)


def _call(run: Callable[..., int], model: QuantizedModel, feeds: Feeds) -> list[Array]:
    """The outputs of a C function that takes pointers to the elements of each input, then of each output."""
    fed = [np.ascontiguousarray(feeds[entry.name], entry.dtype) for entry in model.inputs]
    outputs = [np.empty(entry.shape, entry.dtype) for entry in model.outputs]
    status = run(*(ctypes.c_void_p(array.ctypes.data) for array in (*fed, *outputs)))
    if status:
        raise MRTError(f"the program in C gives status {status}; 0 is needed")
    return outputs


def read_back(rewritten: Callable[[QuantizedModel, Path], Graph], folder: Path, feeds: Feeds, threads: int) -> Outputs:
    """What an exported model means by MRT's reader of its format, whose own runtime is of the past."""
    model = mrt.load(folder)
    graph = rewritten(model, folder)
    symbols = {entry.name: symbol for entry, symbol in zip(model.inputs, graph.inputs, strict=True)}

    def run(fed: Feeds) -> list[Array]:
        return graph.evaluate({symbols[name].name: x.astype(symbols[name].dtype) for name, x in fed.items()})

    found = by_sample(run, feeds)
    return [as_integers(x, entry.shape, entry.dtype) for x, entry in zip(found, model.outputs, strict=True)]


def through_relay(model: QuantizedModel, folder: Path) -> Graph:
    *_, text = model.to_relay(folder / "model.relay")
    return mrt.load_model(text)


def through_mxnet(model: QuantizedModel, folder: Path) -> Graph:
    parameters, symbol = model.to_mxnet(folder / "model")
    shapes = {entry.name: entry.shape for entry in model.inputs}
    return mrt.from_mxnet(symbol, parameters, shapes)


def as_integers(x: Array, shape: tuple[int, ...], dtype: str) -> Array:
    """Integers that a format keeps in another dtype, in theirs; MRTError where they are none."""
    found = x.astype(dtype).reshape(-1, *shape[1:])
    if not np.array_equal(found, x.reshape(found.shape)):
        raise MRTError(f"{x.dtype} values are no {dtype}")
    return found


C_COMPILER = os.environ.get("CC", "cc")
C_FLAGS = ("-std=c99", "-O2", "-shared", "-fPIC")

NATIVE = "native"
LEVELS = {
    "x86-64": ("sse2",),
    "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
    NATIVE: (),
}
"""CPUs that code is made for, and what each has beyond those before it (System V ABI, AMD64 supplement)."""


def lacking(cpu: str) -> str:
    """Why code for a CPU level cannot run on this machine, or ""."""
    import tvm
    from tvm.target import codegen

    own = tvm.target.Target({"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu()})
    missing = [feature for feature in LEVELS[cpu] if not codegen.target_has_features(feature, own)]
    return f"this machine lacks {', '.join(missing)}" if missing else ""


def no_compiler() -> str:
    """Why C cannot be compiled, or ""."""
    return "" if shutil.which(C_COMPILER) else f"there is no C compiler {C_COMPILER}"


def not_installed(module: str) -> str:
    """Why an engine that is a Python module cannot run, or ""."""
    return "" if importlib.util.find_spec(module) else f"{module} is not installed"


THREADS = (1, 2)
ENGINES = (
    Engine("NumPy", evaluate),
    *(Engine(cpu, partial(compile_and_run, cpu), n, partial(lacking, cpu)) for cpu in LEVELS for n in THREADS),
    *(
        Engine("ONNX Runtime", partial(export_to_onnx, onnx_runtime), n, partial(not_installed, "onnxruntime"))
        for n in THREADS
    ),
    Engine("ONNX reference", partial(export_to_onnx, onnx_reference)),
    Engine("C", export_to_c, absent=no_compiler),
    Engine("Relay text", partial(read_back, through_relay)),
    Engine("MXNet checkpoint", partial(read_back, through_mxnet)),
)
"""The first is what the integers mean; the others are held to it."""


# Outcomes


@dataclass(frozen=True)
class Outcome:
    """What became of one engine on one network: a digest, or why it failed, or why it was not run."""

    digest: str = ""
    error: str = ""
    absent: str = ""


def digest(outputs: Outputs) -> str:
    """SHA-256 of the outputs in order: of each its dtype and shape, and its elements, little-endian in C order."""
    found = hashlib.sha256()
    for output in outputs:
        found.update(f"{output.dtype.name} {list(output.shape)}\n".encode())
        found.update(output.astype(output.dtype.newbyteorder("<")).tobytes())
    return found.hexdigest()


def are_same(outcomes: Sequence[Outcome]) -> bool:
    """Whether no engine failed and at least two ran, with one digest."""
    ran = [outcome.digest for outcome in outcomes if not outcome.absent]
    return len(ran) > 1 and len(set(ran)) == 1 and all(ran)


def cells(outcomes: Sequence[Outcome]) -> list[str]:
    """The first engine's digest and, for each engine, "=" where its digest is that, else the digest's beginning."""
    expected = outcomes[0].digest
    return [expected or "-", *(_cell(outcome, expected) for outcome in outcomes)]


def _cell(outcome: Outcome, expected: str) -> str:
    if outcome.absent:
        return "-"
    if outcome.error:
        return "failed"
    return "=" if outcome.digest == expected else outcome.digest[:8]


def row(values: Iterable[str]) -> str:
    return f"| {' | '.join(values)} |"


# Processes


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("networks", nargs="*", default=["*"], help="names or patterns of the first column; all")
    parser.add_argument("--inputs", type=whole(1), default=50, help="how many inputs a network is given (50)")
    parser.add_argument("--run", nargs=2, metavar=("ENGINE", "FOLDER"), help="what a child process does")
    arguments = parser.parse_args()
    if arguments.run:
        place, folder = arguments.run
        try:
            print(run(ENGINES[int(place)], Path(folder)))
        except MRTError as error:
            sys.exit(str(error))
        return
    data = os.environ.get("MRT_DATA")
    if not data:
        print("the variable MRT_DATA is not set, which names the folder of models and data: the example alone is run")
    known = list(networks(Path(data) if data else None))
    unknown = [p for p in arguments.networks if not any(fnmatchcase(each.name, p) for each in known)]
    if unknown:
        names = ", ".join(each.name for each in known)
        parser.error(f"argument networks: {unknown[0]!r} was found; a name or pattern of these is needed: {names}")
    chosen = [each for each in known if any(fnmatchcase(each.name, p) for p in arguments.networks)]
    sys.exit(0 if report(chosen, arguments.inputs) else 1)


def report(chosen: Iterable[Network], count: int) -> bool:
    """Prints a row for each network as it is found, then what there is to say; whether all is as it should be."""
    absent = {engine: engine.absent() for engine in ENGINES}
    print(row(["network", f"SHA-256 of {count} outputs", *map(column, ENGINES)]))
    print(row(["---"] * (len(ENGINES) + 2)))
    notes = {f"{column(engine)}: not run, {reason}": None for engine, reason in absent.items() if reason}
    holds = True
    for network in chosen:
        with tempfile.TemporaryDirectory() as folder:
            try:
                save_model(network, Path(folder), count)
            except MRTError as error:
                said = REFUSED.get(network.name)
                holds &= said is not None and said in str(error)
                print(row([network.name, "refused", *["-"] * len(ENGINES)]), flush=True)
                notes[f"{network.name}: {error}"] = None
                continue
            outcomes = [
                Outcome(absent=absent[engine]) if absent[engine] else run_child(place, engine, folder)
                for place, engine in enumerate(ENGINES)
            ]
        holds &= are_same(outcomes)
        print(row([network.name, *cells(outcomes)]), flush=True)
        failed = zip(ENGINES, outcomes, strict=True)
        notes |= {f"{network.name}, {column(engine)}: {each.error}": None for engine, each in failed if each.error}
    print("\n" + "\n".join([*notes, "all equal" if holds else "NOT all equal"]))
    return holds


def column(engine: Engine) -> str:
    return engine.name if engine.threads == 1 else f"{engine.name}, {engine.threads} threads"


def run(engine: Engine, folder: Path) -> str:
    """The digest of an engine's outputs for the inputs saved beside the model in `folder`."""
    with np.load(folder / INPUTS) as arrays:
        feeds = dict(arrays)
    return digest(engine.run(folder, feeds, engine.threads))


def run_child(place: int, engine: Engine, folder: str) -> Outcome:
    """What a child process of this file finds, with as many threads as the engine shall have."""
    threads = {"TVM_NUM_THREADS": str(engine.threads), "TVM_BIND_THREADS": "0", "OMP_NUM_THREADS": str(engine.threads)}
    command = [sys.executable, __file__, "--run", str(place), folder]
    child = subprocess.run(command, env={**os.environ, **threads}, capture_output=True, text=True)
    if child.returncode:
        said: Any = child.stderr.strip().splitlines()
        return Outcome(error=said[-1] if said else f"the process ended with status {child.returncode}")
    return Outcome(digest=child.stdout.split()[-1])


if __name__ == "__main__":
    main()
