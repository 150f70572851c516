"""Compiled code: in this process, to be linked to a shared library, or loaded from one."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import tvm
from tvm.runtime.vm import VirtualMachine
from tvm.support.cc import create_shared

from mrt.errors import CompilationError
from mrt.runtime.elf import ELF_64, HEADER_64, foreign_machine
from mrt.runtime.linker import THIS_MACHINE, Linker
from mrt.runtime.metadata import REQUEST
from mrt.runtime.threads import module_threads

LIBRARY = "model.so"
"""The name of a library while it is being made."""


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
    linker: what links them. has_threads: whether the library gets threads of its own that share loops, where it is for
    Linux (`module_threads.c`); else whoever loads it sets the pointer that kernels call for this.
    """

    objects: Sequence[bytes]
    linker: Linker = THIS_MACHINE
    has_threads: bool = False

    def link(self, path: Path, options: Sequence[str] = ()) -> None:
        """Writes the library, and its parts beside it. options: what the linker is told besides.

        Raises CompilationError where there is no linker, or it fails, OSError where the parts cannot be written.
        """
        command = self.linker.command()
        threads = [module_threads(command)] if self.has_threads and self.linker.is_for_linux else []
        objects = [*self.objects, *threads]
        parts = [path.with_name(f"part{place}.o") for place in range(len(objects))]
        for part, content in zip(parts, objects, strict=True):
            part.write_bytes(content)
        # An identity is a digest of the whole file, which takes longer than linking it.
        plain = ["-pthread", *(["-Wl,--build-id=none"] if self.linker.is_for_linux else [])]
        try:
            create_shared(str(path), [str(part) for part in parts], [*plain, *options], cc=command)
        except RuntimeError as error:
            foreign = foreign_machine(self.objects[0])
            other = (
                f"; it is code for {foreign}, this machine is {platform.machine()}: name a compiler for {foreign} by "
                f"the key linker of the target, or compile for this machine, target='native'"
            )
            raise CompilationError(
                f"the module cannot be linked by {command}: {_said(error)}{other if foreign else ''}"
            ) from error

    def library(self) -> Library:
        """What is linked; CompilationError where that fails, or where there is no room for it."""
        try:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / LIBRARY
                self.link(path)
                return Library(path.read_bytes())
        except OSError as error:
            raise CompilationError(f"the module cannot be linked: {_unwritable(error)}") from error


def _said(error: BaseException) -> str:
    """The first line of a linker's message, without TVM's heading and the command line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(("Compilation error:", "Command line:"))]
    return said[0] if said else f"it failed without a word, by {' '.join(lines)}"


class Library:
    """A shared library, whose weights are not held twice: its bytes are let go of once it is loaded from a file."""

    def __init__(self, content: bytes) -> None:
        """content: of its file."""
        self._kept: bytes | mmap = content

    @property
    def content(self) -> bytes:
        """Of its file; what is loaded is read from there, since no other has a way to it."""
        return self._kept[:]

    @cached_property
    def code(self) -> Any:
        """TVM's module of the library, loaded into this process when first used; it needs no file that has a name.

        The system's loader knows libraries by their files, and gives an earlier one for a file that it has seen, so
        that each is loaded from a file of its own, which nobody else writes to. CompilationError where that fails, in a
        temporary folder that nothing may be executed from say, or where code is for other machines.
        """
        if machine := foreign_machine(self.content):
            raise CompilationError(
                f"the module is compiled for {machine}, this machine is {platform.machine()}: run it there, or compile "
                f"the model for this machine, target='native'"
            )
        try:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / LIBRARY
                path.write_bytes(self.content)
                code = tvm.runtime.load_module(str(path))
                with path.open("rb") as file:
                    self._kept = mmap(file.fileno(), 0, access=ACCESS_READ)
                return code
        except OSError as error:
            raise CompilationError(f"the module cannot be loaded: {_unwritable(error)}") from error
        except Exception as error:  # what fails, and how, depends on the system's loader
            raise CompilationError(
                f"the module cannot be loaded from {folder}: {line_of(error, 0)}; it must be compiled for this "
                f"machine, and the folder of temporary files, which TMPDIR names, one that code may be executed from"
            ) from error


def virtual_machine(executable: Any) -> Any:
    """What runs an `Executable`, or TVM's module of one that was loaded.

    CompilationError where this process does not get the registers that it needs.
    """
    if isinstance(executable, Executable):
        executable = executable.bytecode
    machine = VirtualMachine(executable, tvm.cpu())
    check_tiles(machine)
    return machine


def check_tiles(machine: Any) -> None:
    """Asks for tile registers where code uses them; CompilationError where its process does not get them."""
    try:
        request = machine[REQUEST]
    except (AttributeError, ValueError):
        return
    if request().numpy().any():
        raise CompilationError(
            "the code uses tile registers (AMX), which this process does not get; compile it with the feature -amx-int8"
        )


def check_whole(library: bytes) -> None:
    """ValueError for what is no library, or one that was cut short, which the system's loader would crash on.

    An ELF file ends with its section headers, whose place and number its header states.
    """
    if not library:
        raise ValueError("the file is empty")
    if not library.startswith(ELF_64):
        raise ValueError("it is no shared library of 64 bits")
    if len(library) < HEADER_64.size:
        raise ValueError("the file is cut short")
    *_, start, _, _, _, _, size, count, _ = HEADER_64.unpack_from(library)
    if len(library) < start + size * count:
        raise ValueError(f"the file is cut short: it holds {len(library)} bytes of {start + size * count}")


def line_of(error: BaseException, which: int) -> str:
    """Line `which` of an error's text; negative counts from the end."""
    lines = str(error).strip().splitlines()
    return lines[min(which, len(lines) - 1)].strip() if lines else type(error).__name__


def _unwritable(error: OSError) -> str:
    return f"{error.strerror or error}; name another folder for temporary files by TMPDIR"
