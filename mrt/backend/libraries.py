"""Machine code of kernels, made in groups on all cores while further kernels are still being scheduled."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import tvm
from tvm import tirx

from mrt.backend.joined import of_pointers
from mrt.backend.machine import Machine
from mrt.backend.stack import KERNELS
from mrt.workers import cores

GROUP = 4
"""Kernels that LLVM is given at a time. TVM lets go of the interpreter meanwhile."""
SETTINGS = {"tirx.disable_assert": True}
"""Of TVM: no kernel checks the tensors that it is called with, which took more code than the kernels themselves. Those
inside are planned, and the virtual machine checks what its functions are given."""


class Libraries:
    """Compiles the kernels of one module in the order in which they are added.

    Groups do not depend on how many cores there are, so that the code does not either.
    """

    def __init__(self, machine: Machine, ready: bool = False) -> None:
        """ready: whether the code is to run in this process, and not to be saved: it is placed in memory at once."""
        self._machine, self._ready = machine, ready
        self._names: set[str] = set()
        self._group: dict[str, Any] = {}
        self._pool = ThreadPoolExecutor(cores())
        self._begun: list[Future[Any]] = []

    def add(self, name: str, function: Any) -> None:
        """Takes a scheduled PrimFunc to be called by `name`; one that was taken by this name already is the same."""
        if name in self._names:
            return
        self._names.add(name)
        self._group[name] = of_pointers(function).with_attr("global_symbol", name)
        if len(self._group) == GROUP:
            self._begin()

    def finish(self) -> list[Any]:
        """TVM's modules of all kernels that were added, once they are made; raises what TVM raised."""
        if self._group:
            self._begin()
        try:
            return [future.result() for future in self._begun]
        finally:
            self._pool.shutdown(cancel_futures=True)

    def _begin(self) -> None:
        self._begun.append(self._pool.submit(self._built, self._group))
        self._group = {}

    def _built(self, group: dict[str, Any]) -> Any:
        with tvm.transform.PassContext(config=SETTINGS):
            built = tirx.build(tvm.IRModule(group), self._machine.target, KERNELS)
        if self._ready:
            for name in group:
                built.get_function(name)
        return built
