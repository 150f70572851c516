"""The threads that share the loops of kernels: C that is linked to a module, or to a library that is exported."""

from __future__ import annotations

import subprocess
import tempfile
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from mrt.errors import CompilationError

POOL, OF_MODULE = "thread_pool.h", "module_threads.c"
FLAGS = ("-O2", "-std=gnu99", "-fPIC", "-pthread")


def source(name: str) -> str:
    """The C of a file of this package."""
    return files(__package__).joinpath(name).read_text(encoding="ascii")


@lru_cache(maxsize=8)
def module_threads(compiler: str) -> bytes:
    """The object file that gives a module threads of its own, which its kernels' loops are shared by.

    compiler: the program that links the module. CompilationError where it compiles no C, OSError where the folder of
    temporary files cannot be written.
    """
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        for name in (POOL, OF_MODULE):
            (folder / name).write_text(source(name), encoding="ascii")
        command = [compiler, *FLAGS, "-x", "c", "-c", OF_MODULE, "-o", "threads.o"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode != 0:
            said = next((line.strip() for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
            raise CompilationError(
                f"the module's threads cannot be compiled by {compiler}: {said}; a compiler of C and C++ is needed, or "
                f"a target with threads: 1"
            )
        return (folder / "threads.o").read_bytes()
