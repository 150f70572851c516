"""The program that makes a shared library of machine code: this machine's C++ compiler, or one for other machines."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tvm.support.cc import get_cc

from mrt.errors import CompilationError

COMPILERS = ("g++", "gcc", "clang++")
"""What follows the triple in the names of cross compilers, as Linux distributions call them."""
PARTS = 4
"""The vendors in triples, which the names of cross compilers leave out."""


@dataclass(frozen=True)
class Linker:
    """What links code for the machines of LLVM's `triple`, None being this one. given: the program, if one is named."""

    triple: str | None = None
    given: str | None = None

    def command(self) -> str:
        """The path of the program; CompilationError where there is none."""
        if self.given is not None:
            found = shutil.which(self.given)
            if found is None:
                raise CompilationError(f"target: linker is {self.given}; no such program can be executed")
            return found
        if self.triple is None or _is_of_this_machine(self.triple):
            own = get_cc()
            if own is None:
                raise CompilationError("the module cannot be linked: there is no C++ compiler; install g++ or clang++")
            return str(own)
        names = list(dict.fromkeys(_names(self.triple)))
        for name in names:
            if found := shutil.which(name):
                return found
        raise CompilationError(
            f"the module cannot be linked for {self.triple}: {', '.join(names)} are not on PATH; install a cross "
            f"compiler, or name one by the key linker of the target"
        )

    @property
    def is_for_linux(self) -> bool:
        return sys.platform == "linux" if self.triple is None else "linux" in self.triple


THIS_MACHINE = Linker()


def _is_of_this_machine(triple: str) -> bool:
    return triple.split("-")[0] == platform.machine() and "linux" in triple


def _names(triple: str) -> Iterator[str]:
    machine, *rest = triple.split("-")
    short = "-".join([machine, *rest[1:]]) if len(rest) + 1 >= PARTS else triple
    for prefix in (triple, short):
        yield from (f"{prefix}-{compiler}" for compiler in COMPILERS)
