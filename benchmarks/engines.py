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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from command_line import Parser, whole
from engine_networks import INPUTS, REFUSED, Network, networks, save_model

import mrt
from mrt.errors import MRTError
from mrt.export.c import sizes_in
from mrt.model import QuantizedModel
from mrt.symbol import Array, Graph

Feeds = Mapping[str, Array]
Outputs = Sequence[Array]


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
    header, source, *_ = model.to_c(folder / "c")
    library = folder / "c" / "model.so"
    subprocess.run([C_COMPILER, *C_FLAGS, source, "-o", library], check=True)
    size, _ = sizes_in(header.read_text())
    instance = np.empty(size // 8 + 1, np.int64)
    return by_sample(partial(_call, ctypes.CDLL(str(library)).model_run, instance, model), feeds)


def _call(run: Callable[..., int], instance: Array, model: QuantizedModel, feeds: Feeds) -> list[Array]:
    """The outputs of a C function that takes an instance and pointers to the elements of each input and output."""
    fed = [np.ascontiguousarray(feeds[entry.name], entry.dtype) for entry in model.inputs]
    outputs = [np.empty(entry.shape, entry.dtype) for entry in model.outputs]
    status = run(*(ctypes.c_void_p(array.ctypes.data) for array in (instance, *fed, *outputs)))
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
