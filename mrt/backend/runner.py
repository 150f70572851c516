"""The runner that compiles graphs with TVM: what calibration and evaluation run on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import local
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from mrt.backend.build import compile_executable
from mrt.backend.link.kernel_compiler import KernelCompiler, in_memory
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import Machine
from mrt.backend.memory.alignment import empty, side_by_side
from mrt.backend.rewrites.known_bounds import Bounds
from mrt.collector import also_give_back
from mrt.compilation import NATIVE, Target, TargetConfig
from mrt.runtime import virtual_machine
from mrt.symbol import Array, Evaluate, Graph

MAIN, RELEASE = "main", "release"
"""The graph's function, and one that gives a single byte: the machine keeps what it gave last."""

ONE_THREAD = TargetConfig(threads=1)
"""This machine's CPU, for functions that several threads call at once, each of which then keeps to one core."""

# TVM keeps the memory of results and workspaces that it has freed for the next call of any network.
also_give_back(tvm.get_global_func("vm.builtin.memory_manager.clear"))


@dataclass(frozen=True)
class TvmRunner:
    """Runs graphs compiled for `target`. Each `prepare` compiles anew and nothing is kept between them.

    known: intervals of integer inputs, by name, which nothing checks; those of other inputs are known by dtype only.
    """

    target: Target = NATIVE
    known: Bounds = field(default_factory=dict)

    def prepare(self, graph: Graph) -> Evaluate:
        """A function from arrays by input name to the list of outputs; CompilationError if TVM fails.

        The function raises DataError for feeds that do not fit the graph's inputs. Its outputs may be views of memory
        in another order.
        """
        machine = Machine.of(self.target)
        compiler = KernelCompiler(machine, in_memory)
        builder = ModuleBuilder(machine, on_function=compiler.add)
        storages = builder.add(graph, MAIN, self.known, as_they_lie=True)
        builder.add_bytes(b"\0", RELEASE)
        places, size = side_by_side(np.dtype(each.dtype).itemsize * each.type.size for each in graph.inputs)
        # Constants would be hashed before they became part of the executable, which takes as long as a few runs.
        executable = compile_executable(builder.module(), machine, compiler, (MAIN,), builder.shelf)
        machines = _Machines(executable)
        fed_alone = Graph(graph.inputs, graph.inputs)  # the constants hold all that is needed of the parameters

        def evaluate(feeds: Mapping[str, Array]) -> list[Array]:
            fed, functions = fed_alone.feed(feeds), machines.own
            inputs = empty((size,), np.uint8)
            for symbol, place in zip(fed_alone.inputs, places, strict=True):
                array = fed[symbol.name]
                inputs[place : place + array.nbytes].view(array.dtype).reshape(array.shape)[...] = array
            given = functions[MAIN](tvm_ffi.from_dlpack(inputs), executable.constants)
            # Outputs may be hundreds of MiB: they are not copied, and nobody but the caller holds them.
            outputs = [np.from_dlpack(output) for output in given]
            functions[RELEASE]()
            return [storage.read(output) for storage, output in zip(storages, outputs, strict=True)]

        return evaluate


class _Machines(local):
    """The virtual machines of one executable: each thread has its own, since one runs a call at a time.

    `local` makes an object anew in every thread that looks at it, from the same arguments.
    """

    def __init__(self, executable: Any) -> None:
        self.own = virtual_machine(executable)
