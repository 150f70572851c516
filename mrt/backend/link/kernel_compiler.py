"""Machine code of kernels, made in groups on all cores while further kernels are still being scheduled."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
from tvm import tirx

from mrt.backend.link.calls import taking_pointers
from mrt.backend.link.kernel_pipeline import KERNELS
from mrt.backend.machine import Machine
from mrt.workers import cores

GROUP = 4
"""Kernels that LLVM is given at a time. TVM lets go of the interpreter meanwhile."""
SETTINGS = {"tirx.disable_assert": True}
"""Of TVM: no kernel checks the tensors that it is called with, which took more code than the kernels themselves. Those
inside are planned, and the virtual machine checks what its functions are given."""


Form = Callable[[Mapping[str, Any], Any], Any]
"""Compiles a group, functions by name, for a target of TVM's, in a thread of its own."""


def as_module(group: Mapping[str, Any], target: Any) -> Any:
    """TVM's module, of which LLVM makes machine code when it is first asked for."""
    named = {name: function.with_attr("global_symbol", name) for name, function in group.items()}
    with tvm.transform.PassContext(config=SETTINGS):
        return tirx.build(tvm.IRModule(named), target, KERNELS)


def in_memory(group: Mapping[str, Any], target: Any) -> Any:
    """The module, its machine code placed in the memory of this process."""
    built = as_module(group, target)
    for name in group:
        built.get_function(name)
    return built


def as_object(built: Any) -> bytes:
    """The content of an object file, for a linker.

    LLVM ends the process where it cannot write, on a full disk say: so it is given a file in memory. OSError where the
    object exceeds what this process may write to a file.
    """
    with os.fdopen(os.memfd_create("object"), "r+b") as file:
        _check_limit(built)
        built.write_to_file(f"/proc/self/fd/{file.fileno()}", "o")
        return file.read()


def _check_limit(built: Any) -> None:
    """OSError for an object that is larger than a file may be, in memory too (`ulimit -f`).

    How large it will be is known once LLVM has written it to nowhere, by what Linux counts for this thread.
    """
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit == resource.RLIM_INFINITY:
        return
    before = _bytes_written()
    built.write_to_file(os.devnull, "o")
    if _bytes_written() - before > limit:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))


def _bytes_written() -> int:
    """What this thread has written to whatever files; 0 where Linux does not count."""
    try:
        counts = Path("/proc/thread-self/io").read_text(encoding="ascii")
    except OSError:
        return 0
    return int(counts.split("wchar:")[1].split()[0])


class KernelCompiler:
    """Compiles the kernels of one module in the order in which they are added.

    Groups do not depend on how many cores there are, so that the code does not either. Whoever adds them has a core of
    its own meanwhile, since only its own work may be the longest; while it waits for the last ones it compiles, too.
    """

    def __init__(self, machine: Machine, form: Form = as_module, size: int = GROUP) -> None:
        """form: what becomes of a group, of `size` kernels. functions: all that were taken, with pointers, by name."""
        self._machine, self._form, self._size = machine, form, size
        self.functions: dict[str, Any] = {}
        self._group: dict[str, Any] = {}
        self._pool = ThreadPoolExecutor(max(cores() - 1, 1))
        self._compiling: list[_Compiling] = []

    def add(self, name: str, function: Any) -> None:
        """Takes a scheduled PrimFunc to be called by `name`; one that was taken by this name already is the same."""
        if name in self.functions:
            return
        self.functions[name] = self._group[name] = taking_pointers(function)
        if len(self._group) == self._size:
            self._compile_group()

    def finish(self) -> list[Any]:
        """All groups in their form, once they are made; raises what TVM raised."""
        if self._group:
            self._compile_group()
        try:
            # Threads take them from the front.
            for compiling in reversed(self._compiling):
                if compiling.theirs.cancel():
                    compiling.own = self._form(compiling.group, self._machine.target)
            return [each.theirs.result() if each.own is None else each.own for each in self._compiling]
        finally:
            self._pool.shutdown(cancel_futures=True)

    def _compile_group(self) -> None:
        theirs = self._pool.submit(self._form, self._group, self._machine.target)
        self._compiling.append(_Compiling(self._group, theirs))
        self._group = {}


@dataclass(eq=False)
class _Compiling:
    """A group of kernels. theirs: its form, if a thread of the pool makes it; own: if the thread that waits does."""

    group: Mapping[str, Any]
    theirs: Future[Any]
    own: Any = None
