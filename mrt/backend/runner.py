"""The runner that compiles graphs with TVM: what calibration and evaluation run on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import local
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from mrt.backend.build import compile_executable
from mrt.backend.link.kernel_compiler import KernelCompiler, in_memory
from mrt.backend.link.kernel_objects import object_compiler
from mrt.backend.link.loaded_objects import loadable_objects, recalling
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import Machine
from mrt.backend.memory.alignment import empty, side_by_side
from mrt.backend.memory.storage import Storage
from mrt.backend.rewrites.known_bounds import Bounds
from mrt.collector import also_give_back, paused_collector
from mrt.compilation import NATIVE, Target, TargetConfig
from mrt.cpu_flags import check_runs_here
from mrt.runtime import virtual_machine
from mrt.symbol import Array, Evaluate, Graph

MAIN, RELEASE = "main", "release"
"""A graph's function, numbered from the second on, and one that gives a single byte: the machine keeps what it gave
last."""

ONE_THREAD = TargetConfig(threads=1)
"""This machine's CPU, for functions that several threads call at once, each of which then keeps to one core."""

# TVM keeps the memory of results and workspaces that it has freed for the next call of any network.
also_give_back(tvm.get_global_func("vm.builtin.memory_manager.clear"))


@dataclass(frozen=True)
class TvmRunner:
    """Runs graphs compiled for `target`. Nothing is kept between two calls of `prepare` but kernels, in the cache.

    known: intervals of integer inputs, by name, which nothing checks; those of other inputs are known by dtype only.
    """

    target: Target = NATIVE
    known: Bounds = field(default_factory=dict)

    def prepare(self, graph: Graph) -> Evaluate:
        """A function from arrays by input name to the list of outputs; CompilationError if TVM fails, or where this
        machine's CPU lacks what the target has.

        The function raises DataError for feeds that do not fit the graph's inputs. Its outputs may be views of memory
        in another order.
        """
        return self.prepare_all([graph])[0]

    @paused_collector()
    def prepare_all(self, graphs: Iterable[Graph], size: int = 0) -> list[Evaluate]:
        """What `prepare` gives for each graph; they share kernels, and what threads keep.

        size: bytes of the parameters of all graphs, which are drawn one after the other.
        """
        machine = Machine.of(self.target).compiling_quickly()
        check_runs_here(machine.needs)
        objects = loadable_objects()
        compiler = KernelCompiler(machine, in_memory) if objects is None else object_compiler(machine, objects)
        builder = ModuleBuilder(machine, on_function=compiler.add, recall=recalling(objects, machine))
        builder.reserve(size)
        made: list[tuple[Graph, str, list[Storage]]] = []
        for number, graph in enumerate(graphs):
            name = f"{MAIN}{number or ''}"
            storages = builder.add(graph, name, self.known, as_they_lie=True)
            # The constants hold all that is needed of the parameters.
            made.append((Graph(graph.inputs, graph.inputs), name, storages))
            builder.let_go_of_parameters()
        builder.add_bytes(b"\0", RELEASE)
        # Constants would be hashed before they became part of the executable, which takes as long as a few runs.
        executable = compile_executable(
            builder.module(), machine, compiler, [name for _, name, _ in made], builder.shelf, objects
        )
        machines = _Machines(executable)
        return [_evaluate(*each, machines, executable.constants) for each in made]


def _evaluate(
    fed_alone: Graph, name: str, storages: Sequence[Storage], machines: _Machines, constants: Any
) -> Evaluate:
    """What runs one function of an executable. fed_alone: a graph of its inputs. storages: how its outputs lie."""
    places, size = side_by_side(np.dtype(each.dtype).itemsize * each.type.size for each in fed_alone.inputs)
    readers = [storage.reader() for storage in storages]

    def evaluate(feeds: Mapping[str, Array]) -> list[Array]:
        # Networks that are tried have hundreds of small inputs and outputs: no more is done for each than must be.
        fed, functions = fed_alone.feed(feeds), machines.own
        inputs = empty((size,), np.uint8)
        for array, place in zip(fed.values(), places, strict=True):
            np.ndarray(array.shape, array.dtype, inputs, place)[...] = array
        given = functions[name](tvm_ffi.from_dlpack(inputs), constants)
        # Outputs may be hundreds of MiB: they are not copied, and nobody but the caller holds them.
        outputs = [np.from_dlpack(output) for output in given]
        functions[RELEASE]()
        return [read(output) for read, output in zip(readers, outputs, strict=True)]

    return evaluate


class _Machines(local):
    """The virtual machines of one executable: each thread has its own, since one runs a call at a time.

    `local` makes an object anew in every thread that looks at it, from the same arguments.
    """

    def __init__(self, executable: Any) -> None:
        self.own = virtual_machine(executable)
