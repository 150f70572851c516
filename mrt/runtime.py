"""Running a compiled model: it needs the one file, NumPy and TVM's runtime, nothing else of MRT's stages."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.support.cc import get_cc

from mrt.errors import CompilationError, DataError, ModelFileError
from mrt.symbol.quantized_tensor import Array, TensorQuantization
from mrt.workers import cores

FORMAT_VERSION = 4
MAIN, REAL, METADATA = "main", "real", "mrt_metadata"
"""The functions of a compiled module: of integers, of real values, and one that gives the facts as JSON in bytes."""
CALLS, MEMORY = "_calls", "_memory"
"""What is added to the name of a function for the one that does its work, and for the one that gives it memory."""
REQUEST = "request_tiles"
"""The function of code that uses tile registers which asks for them and gives 0, before any other is called."""

LIBRARY = "model.so"
"""The name of a library while it is being made."""

ELF_HEADER = struct.Struct("<40xQ10xHH2x")
"""Of the 64-bit format: the place of the section headers, the size of one and their number."""


@dataclass(frozen=True)
class Metadata:
    """What a compiled module knows of itself.

    batch: samples that one call of its functions takes. digest: of the quantized model that it was compiled from.
    constants: places of the integer outputs that depend on no input and so have no batch; final_constants: the same of
    what a call gives, behind the tail. workers: how many calls are to run side by side, each on one core, where there
    are so many samples.
    """

    batch: int
    digest: str
    inputs: tuple[TensorQuantization, ...]
    outputs: tuple[TensorQuantization, ...]
    constants: tuple[int, ...] = ()
    final_constants: tuple[int, ...] = ()
    workers: int = 1

    def to_json(self) -> str:
        return json.dumps(
            {
                "format_version": FORMAT_VERSION,
                "batch": self.batch,
                "digest": self.digest,
                "inputs": [entry.to_json() for entry in self.inputs],
                "outputs": [entry.to_json() for entry in self.outputs],
                "constants": self.constants,
                "final_constants": self.final_constants,
                "workers": self.workers,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Metadata:
        """The metadata in `text`; ModelFileError if it is none of this format."""
        try:
            data = json.loads(text)
            version = data["format_version"]
            if version != FORMAT_VERSION:
                raise ModelFileError(f"format_version is {version}, this MRT reads {FORMAT_VERSION}; compile it again")
            return cls(
                int(data["batch"]),
                str(data["digest"]),
                tuple(TensorQuantization.from_json(entry) for entry in data["inputs"]),
                tuple(TensorQuantization.from_json(entry) for entry in data["outputs"]),
                tuple(int(place) for place in data["constants"]),
                tuple(int(place) for place in data["final_constants"]),
                int(data["workers"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"its metadata is malformed: {error}") from None


@dataclass(frozen=True, eq=False)
class Executable:
    """Compiled functions, to be run in this process.

    bytecode: the virtual machine's. calls: machine code of what calls kernels, found by name. kernels: the modules that
    hold them. constants: a tensor of all, for functions that are given it.
    """

    bytecode: Any
    calls: Any
    kernels: Sequence[Any]
    constants: Any

    def __post_init__(self) -> None:
        for kernels in self.kernels:
            self.calls.import_module(kernels)
        self.bytecode.mod.import_module(self.calls)


@dataclass(frozen=True, eq=False)
class Linkable:
    """Compiled functions, to be linked to a shared library.

    bytecode: the virtual machine's, with all constants. objects: the files of machine code, by content.
    """

    bytecode: Any
    objects: Sequence[bytes]

    def link(self, path: Path) -> None:
        """Writes the library, and its parts beside it; CompilationError where the system's linker fails."""
        if get_cc() is None:
            raise CompilationError("the module cannot be linked: there is no C++ compiler; install g++ or clang++")
        parts = [path.with_name(f"part{place}.o") for place in range(len(self.objects))]
        for part, content in zip(parts, self.objects, strict=True):
            part.write_bytes(content)
        try:
            self.bytecode.export_library(str(path), addons=[str(part) for part in parts])
        except RuntimeError as error:
            raise CompilationError(f"the module cannot be linked: {_line(error, -1)}") from error

    def load(self) -> Any:
        """TVM's module of the library, which is part of this process from then on, and no file.

        CompilationError where that fails, in a temporary folder that nothing may be executed from say.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / LIBRARY
            self.link(path)
            try:
                return tvm.runtime.load_module(str(path))
            except Exception as error:  # what fails, and how, depends on the system's loader
                raise CompilationError(
                    f"the module cannot be loaded from {folder}: {_line(error, 0)}; save it and load it from a folder "
                    f"that code may be executed from, or name one for temporary files by TMPDIR"
                ) from error


@dataclass(frozen=True, eq=False)
class Library:
    """A shared library that was loaded. module: TVM's of it; content: of its file."""

    module: Any
    content: bytes

    def link(self, path: Path) -> None:
        """Writes the same library."""
        path.write_bytes(self.content)

    def load(self) -> Any:
        return self.module


class Module:
    """A compiled model. Not to be called from several threads at once; TVM uses all cores for one call."""

    def __init__(self, library: Linkable | Library, metadata: Metadata) -> None:
        """library: of the functions named above. Users get modules from `compile` or `load_module`."""
        self._library = library
        self._metadata = metadata

    @cached_property
    def _workers(self) -> list[_Worker]:
        """What runs the module. It is made when first needed: for a module that is compiled to be saved, never."""
        code = self._library.load()
        machine = virtual_machine(code)
        return [_Worker(code, machine, self.inputs) for _ in range(max(min(self._metadata.workers, cores()), 1))]

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        """The threads of all workers but the first, which is the caller's."""
        return ThreadPoolExecutor(len(self._workers) - 1)

    @property
    def batch(self) -> int:
        """How many samples go through the network at once; any number may be given."""
        return self._metadata.batch

    @property
    def workers(self) -> int:
        """How many cores take samples each by itself; 1 where all cores share each kernel."""
        return self._metadata.workers

    @property
    def inputs(self) -> tuple[TensorQuantization, ...]:
        return self._metadata.inputs

    @property
    def outputs(self) -> tuple[TensorQuantization, ...]:
        """How the integer outputs stand for real values, before post-processing."""
        return self._metadata.outputs

    @property
    def digest(self) -> str:
        """SHA-256 digest of the quantized model that this was compiled from."""
        return self._metadata.digest

    def __call__(self, x: Array | Mapping[str, Array]) -> Array | list[Array]:
        """Real outputs, float32, for real inputs, post-processing applied.

        x: an array, or arrays by input name where there are several; axis 0 is the sample, any number of them.
        Gives an array, or a list of arrays where there are several outputs. Raises DataError for inputs that do not
        fit or hold NaN.
        """
        pairs = zip(self.inputs, self._arrays(x), strict=True)
        fed = [entry.quantize(array) if entry.is_given else entry.real(array) for entry, array in pairs]
        return _single(self._run(fed, integer=False))

    def run_integer(self, xq: Array | Mapping[str, Array]) -> Array | list[Array]:
        """Integer outputs for integer inputs, given and returned as in a call.

        Raises DataError for inputs of another dtype or shape, or beyond what the model's proof covers.
        """
        fed = self._arrays(xq)
        for entry, array in zip(self.inputs, fed, strict=True):
            entry.check_integers(array)
        return _single(self._run(fed, integer=True))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one self-contained shared library, whole or not at all.

        Raises ModelFileError where it cannot be written, CompilationError where the system's linker fails.
        """
        target = Path(path)
        try:
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
                made = Path(folder) / LIBRARY
                self._library.link(made)
                os.replace(made, target)
        except OSError as error:
            raise ModelFileError(f"{target} cannot be written: {error.strerror or error}") from error

    def _arrays(self, x: Array | Mapping[str, Array]) -> list[Array]:
        """The array of each input, in order."""
        if not isinstance(x, Mapping) and len(self.inputs) == 1:
            return [np.asarray(x)]
        names = [entry.name for entry in self.inputs]
        if not isinstance(x, Mapping):
            raise DataError(f"one array is given, the model has the inputs {names}; give arrays by input name")
        if set(x) != set(names):
            raise DataError(f"inputs {sorted(x)} are given, {sorted(names)} are needed")
        return [np.asarray(x[name]) for name in names]

    def _run(self, fed: Sequence[Array], integer: bool) -> list[Array]:
        """All samples in batches, the last one padded with zeros that are dropped again; constant outputs once."""
        count = len(fed[0])
        if len(fed) > 1 and any(len(array) != count for array in fed):
            raise DataError(f"inputs hold different numbers of samples: {sorted({len(array) for array in fed})}")
        if count == self.batch:
            return self._workers[0].outputs(fed, integer)
        constants = self._metadata.constants if integer else self._metadata.final_constants
        starts = range(0, max(count, 1), self.batch)
        batches = [[x[start : start + self.batch] for x in fed] for start in starts]
        share = -(-len(batches) // len(self._workers))
        begun = [
            self._pool.submit(worker.run, batches[place * share : (place + 1) * share], integer)
            for place, worker in enumerate(self._workers)
            if 0 < place * share < len(batches)
        ]
        parts = self._workers[0].run(batches[:share], integer)
        for future in begun:
            parts += future.result()
        return [
            pieces[0] if place in constants else _joined(pieces, count)
            for place, pieces in enumerate(zip(*parts, strict=True))
        ]


def virtual_machine(executable: Any) -> Any:
    """What runs an `Executable`, or TVM's module of one that was loaded.

    CompilationError where this process does not get the registers that it needs.
    """
    if isinstance(executable, Executable):
        executable = executable.bytecode
    machine = relax.VirtualMachine(executable, tvm.cpu())
    try:
        request = machine[REQUEST]
    except (AttributeError, ValueError):
        return machine
    if request().numpy().any():
        raise CompilationError(
            "the code uses tile registers (AMX), which this process does not get; compile it with the feature -amx-int8"
        )
    return machine


def load_module(path: str | os.PathLike[str]) -> Module:
    """The module that `Module.save` wrote; ModelFileError where the file is missing or no such module.

    A module is machine code, which loading makes part of this process: load only files that you trust.
    """
    if not Path(path).is_file():
        raise ModelFileError(f"{path} does not exist or is no file")
    try:
        library = Path(path).read_bytes()
        _check_whole(library)
        executable = tvm.runtime.load_module(os.path.abspath(path))
        stored = relax.VirtualMachine(executable, tvm.cpu())[METADATA]()
    except Exception as error:  # what fails, and how, depends on what the file is
        raise ModelFileError(f"{path} is no module that MRT compiled: {_line(error, 0)}") from None
    try:
        metadata = Metadata.from_json(bytes(stored.numpy()).decode())
    except (ModelFileError, UnicodeDecodeError) as error:
        raise ModelFileError(f"{path}: {error}") from None
    return Module(Library(executable, library), metadata)


def _check_whole(library: bytes) -> None:
    """ValueError for a library that was cut short, which the system's loader would crash on.

    An ELF file ends with its section headers, whose place and number its header states.
    """
    if library[:4] != b"\x7fELF":
        return
    if len(library) < ELF_HEADER.size:
        raise ValueError("the file is cut short")
    start, size, count = ELF_HEADER.unpack_from(library)
    if len(library) < start + size * count:
        raise ValueError(f"the file is cut short: it holds {len(library)} bytes of {start + size * count}")


class _Worker:
    """The functions of a module with memory of their own, which run one call at a time."""

    def __init__(self, code: Any, machine: Any, inputs: Sequence[TensorQuantization]) -> None:
        """code: the module's, whose functions `machine` runs."""
        integers = [_Feed(entry.shape, entry.dtype) for entry in inputs]
        pairs = zip(integers, inputs, strict=True)
        real = [feed if entry.is_given else _Feed(entry.shape, "float32") for feed, entry in pairs]
        self._functions = _Function(code, machine, REAL, real), _Function(code, machine, MAIN, integers)

    def run(self, batches: Sequence[Sequence[Array]], integer: bool) -> list[list[Array]]:
        """The outputs of one batch after the other, from integers or from real values."""
        return [self.outputs(batch, integer) for batch in batches]

    def outputs(self, batch: Sequence[Array], integer: bool) -> list[Array]:
        """The outputs of one batch, or of less, which is filled up."""
        return [output.copy() for output in self._functions[integer](batch)]


class _Function:
    """A function of a compiled module, with the memory that every call of it uses anew."""

    def __init__(self, code: Any, machine: Any, name: str, feeds: Sequence[_Feed]) -> None:
        """The machine gives the memory; the function itself is called past it."""
        memory, results = machine[name + MEMORY]()
        self._call = code.get_function(name + CALLS, True)
        self._memory = tuple(memory)  # TVM's own arrays are slow to go through
        self._outputs = [np.from_dlpack(result) for result in results]
        self._feeds = feeds

    def __call__(self, batch: Sequence[Array]) -> list[Array]:
        """The outputs, in arrays that the next call fills anew."""
        self._call(*[feed.take(array) for feed, array in zip(self._feeds, batch, strict=True)], *self._memory)
        return self._outputs


class _Feed:
    """An input's memory, for arrays that are not as the function takes them."""

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self._tensor = tvm.runtime.empty(shape, dtype)
        self._held = np.from_dlpack(self._tensor)

    def take(self, array: Array) -> Any:
        """The samples of `array` and zeros behind them, as a tensor: the array's own memory where that is in order."""
        held = self._held
        # Memory that nobody may write to cannot be handed over, though the function only reads it.
        if array.flags.carray and array.dtype == held.dtype and len(array) == len(held):
            return tvm_ffi.from_dlpack(array)
        held[: len(array)] = array
        held[len(array) :] = 0
        return self._tensor


def _joined(pieces: Sequence[Array], count: int) -> Array:
    """The first `count` samples of an output."""
    return (pieces[0] if len(pieces) == 1 else np.concatenate(pieces))[:count]


def _single(outputs: list[Array]) -> Array | list[Array]:
    return outputs[0] if len(outputs) == 1 else outputs


def _line(error: BaseException, which: int) -> str:
    lines = str(error).strip().splitlines()
    return lines[which].strip() if lines else type(error).__name__
