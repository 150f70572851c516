"""Running a compiled model: it needs the one file, NumPy and TVM's runtime, nothing else of MRT's stages."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from mrt.errors import CompilationError, DataError, ModelFileError
from mrt.symbol.quantized_tensor import Array, TensorQuantization

FORMAT_VERSION = 2
MAIN, REAL, METADATA = "main", "real", "mrt_metadata"
"""The functions of a compiled module: of integers, of real values, and one that gives the facts as JSON in bytes."""
REQUEST = "request_tiles"
"""The function of code that uses tile registers which asks for them and gives 0, before any other is called."""

ELF_HEADER = struct.Struct("<40xQ10xHH2x")
"""Of the 64-bit format: the place of the section headers, the size of one and their number."""


@dataclass(frozen=True)
class Metadata:
    """What a compiled module knows of itself.

    batch: samples that one call of its functions takes. digest: of the quantized model that it was compiled from.
    constants: places of the integer outputs that depend on no input and
    so have no batch; final_constants: the same of what a call gives, behind the tail.
    """

    batch: int
    digest: str
    inputs: tuple[TensorQuantization, ...]
    outputs: tuple[TensorQuantization, ...]
    constants: tuple[int, ...] = ()
    final_constants: tuple[int, ...] = ()

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
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFileError(f"its metadata is malformed: {error}") from None


class Module:
    """A compiled model. Not to be called from several threads at once; TVM uses all cores for one call."""

    def __init__(self, executable: Any, metadata: Metadata, library: bytes | None = None) -> None:
        """executable: TVM's, with the functions named above. library: the file that it was loaded from, if it was.

        Users get modules from `compile` or `load_module`.
        """
        self._executable = executable
        self._metadata = metadata
        self._library = library

    @cached_property
    def _functions(self) -> tuple[tuple[Any, list[_Feed]], tuple[Any, list[_Feed]]]:
        """From real values to real values, and from integers to integers, each with the memory of its inputs."""
        integers = [_Feed(entry.shape, entry.dtype) for entry in self.inputs]
        pairs = zip(integers, self.inputs, strict=True)
        real = [feed if entry.is_given else _Feed(entry.shape, "float32") for feed, entry in pairs]
        return (self._machine[REAL], real), (self._machine[MAIN], integers)

    @cached_property
    def _machine(self) -> Any:
        """What runs the module. It is made when first needed: for a module that is compiled to be saved, never."""
        return virtual_machine(_copied(self._executable) if self._library is None else self._executable)

    @property
    def batch(self) -> int:
        """How many samples run at once; any number may be given."""
        return self._metadata.batch

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
        given = self._named(x)
        fed = [entry.quantize(x) if entry.is_given else entry.real(x) for entry, x in self._each(given)]
        return _single(self._run(fed, integer=False))

    def run_integer(self, xq: Array | Mapping[str, Array]) -> Array | list[Array]:
        """Integer outputs for integer inputs, given and returned as in a call.

        Raises DataError for inputs of another dtype or shape, or beyond what the model's proof covers.
        """
        given = self._named(xq)
        fed = []
        for entry, array in self._each(given):
            entry.check_integers(array)
            fed.append(array)
        return _single(self._run(fed, integer=True))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one self-contained shared library, whole or not at all.

        Raises ModelFileError where it cannot be written, CompilationError where the system's linker fails.
        """
        target = Path(path)
        try:
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
                made = Path(folder) / "model.so"
                if self._library is not None:
                    made.write_bytes(self._library)
                else:
                    self._executable.export_library(str(made))
                os.replace(made, target)
        except OSError as error:
            raise ModelFileError(f"{target} cannot be written: {error.strerror or error}") from error
        except RuntimeError as error:
            raise CompilationError(f"{target} cannot be linked: {_line(error, -1)}") from error

    def _named(self, x: Array | Mapping[str, Array]) -> Mapping[str, Array]:
        names = [entry.name for entry in self.inputs]
        if not isinstance(x, Mapping):
            if len(names) != 1:
                raise DataError(f"one array is given, the model has the inputs {names}; give arrays by input name")
            return {names[0]: x}
        if set(x) != set(names):
            raise DataError(f"inputs {sorted(x)} are given, {sorted(names)} are needed")
        return x

    def _each(self, given: Mapping[str, Array]) -> Iterator[tuple[TensorQuantization, Array]]:
        """Every input with its facts, in order."""
        for entry in self.inputs:
            yield entry, np.asarray(given[entry.name])

    def _run(self, fed: Sequence[Array], integer: bool) -> list[Array]:
        """All samples in batches, the last one padded with zeros that are dropped again; constant outputs once."""
        counts = {len(array) for array in fed}
        if len(counts) != 1:
            raise DataError(f"inputs hold different numbers of samples: {sorted(counts)}")
        (count,) = counts
        constants = self._metadata.constants if integer else self._metadata.final_constants
        run, feeds = self._functions[integer]
        starts = range(0, max(count, 1), self.batch)
        parts = []
        for start in starts:
            given = [feed.fill(x[start : start + self.batch]) for feed, x in zip(feeds, fed, strict=True)]
            # Copied, since an output that is an input is memory that the next call fills.
            parts.append([np.array(np.from_dlpack(output)) for output in run(*given)])
        return [
            pieces[0] if place in constants else _joined(pieces, count)
            for place, pieces in enumerate(zip(*parts, strict=True))
        ]


def virtual_machine(executable: Any) -> Any:
    """What runs a Relax executable; CompilationError where this process does not get the registers that it needs."""
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
    return Module(executable, metadata, library)


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


class _Feed:
    """An input's memory, which every call fills anew."""

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self.tensor = tvm.runtime.empty(shape, dtype)
        self._held = np.from_dlpack(self.tensor)

    def fill(self, array: Array) -> Any:
        """The tensor, holding the samples of `array` and zeros behind them."""
        self._held[: len(array)] = array
        self._held[len(array) :] = 0
        return self.tensor


def _joined(pieces: Sequence[Array], count: int) -> Array:
    """The first `count` samples of an output."""
    return (pieces[0] if len(pieces) == 1 else np.concatenate(pieces))[:count]


def _single(outputs: list[Array]) -> Array | list[Array]:
    return outputs[0] if len(outputs) == 1 else outputs


def _line(error: BaseException, which: int) -> str:
    lines = str(error).strip().splitlines()
    return lines[which].strip() if lines else type(error).__name__


def _copied(executable: Any) -> Any:
    """The same executable to run from: running one marks its constants with memory scopes, which then are saved."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bytecode")
        executable.mod.write_to_file(path, "ro")
        copy = tvm.get_global_func("ffi.Module.load_from_file.relax.VMExecutable")(path)
    for kernels in executable.mod.imports:
        copy.import_module(kernels)
    return copy
