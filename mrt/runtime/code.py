"""Compiled code: in this process, to be linked to a shared library, or loaded from one."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.support.cc import create_shared, get_cc

from mrt.errors import CompilationError
from mrt.runtime.metadata import REQUEST

LIBRARY = "model.so"
"""The name of a library while it is being made."""
ELF_HEADER = struct.Struct("<40xQ10xHH2x")
"""Of the 64-bit format: the place of the section headers, the size of one and their number."""


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

    objects: the files to be linked, by content: machine code, and the virtual machine's bytecode with all constants.
    """

    objects: Sequence[bytes]

    def link(self, path: Path) -> None:
        """Writes the library, and its parts beside it.

        Raises CompilationError where the system's linker fails, OSError where the parts cannot be written.
        """
        if get_cc() is None:
            raise CompilationError("the module cannot be linked: there is no C++ compiler; install g++ or clang++")
        parts = [path.with_name(f"part{place}.o") for place in range(len(self.objects))]
        for part, content in zip(parts, self.objects, strict=True):
            part.write_bytes(content)
        try:
            create_shared(str(path), [str(part) for part in parts])
        except RuntimeError as error:
            raise CompilationError(f"the module cannot be linked: {_said(error)}") from error

    def load(self) -> Any:
        """TVM's module of the library, which is part of this process from then on, and no file.

        CompilationError where that fails, in a temporary folder that nothing may be executed from say.
        """
        try:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / LIBRARY
                self.link(path)
                return _loaded(path)
        except OSError as error:
            raise CompilationError(
                f"the module cannot be linked in {tempfile.gettempdir()}: {error.strerror or error}; make room there, "
                f"or name another folder for temporary files by TMPDIR"
            ) from error


def _loaded(path: Path) -> Any:
    try:
        return tvm.runtime.load_module(str(path))
    except Exception as error:  # what fails, and how, depends on the system's loader
        raise CompilationError(
            f"the module cannot be loaded from {path.parent}: {line_of(error, 0)}; save it and load it from a "
            f"folder that code may be executed from, or name one for temporary files by TMPDIR"
        ) from error


def _said(error: BaseException) -> str:
    """The first line of what a linker said, behind TVM's heading and before its own command line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(("Compilation error:", "Command line:"))]
    return said[0] if said else f"it failed without a word, by {' '.join(lines)}"


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


def check_whole(library: bytes) -> None:
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


def line_of(error: BaseException, which: int) -> str:
    """A line of what an error says, counted as indices are."""
    lines = str(error).strip().splitlines()
    return lines[which].strip() if lines else type(error).__name__
