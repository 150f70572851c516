"""The runner that compiles graphs with TVM: what calibration and evaluation run on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tvm

from mrt.backend.build import compile_executable
from mrt.backend.emit import Emitter
from mrt.backend.machine import Machine
from mrt.compilation import NATIVE, Target
from mrt.runtime import virtual_machine
from mrt.symbol import Array, Evaluate, Graph

MAIN, RELEASE = "main", "release"
"""The graph's function, and one that gives a single byte: the machine keeps what it gave last."""


@dataclass(frozen=True)
class TvmRunner:
    """Runs graphs compiled for `target`. Each `prepare` compiles anew and nothing is kept between them."""

    target: Target = NATIVE

    def prepare(self, graph: Graph) -> Evaluate:
        """A function from arrays by input name to the list of outputs; CompilationError if TVM fails.

        The function raises DataError for feeds that do not fit the graph's inputs. Its outputs may be views of memory
        in another order.
        """
        machine = Machine.of(self.target)
        emitter = Emitter(machine)
        storages = emitter.add(graph, MAIN, as_they_lie=True)
        emitter.add_bytes(b"\0", RELEASE)
        has_inner = not set(graph.operators) <= set(graph.outputs)
        functions = virtual_machine(compile_executable(emitter.module(), machine, has_inner))
        main, release = functions[MAIN], functions[RELEASE]

        def evaluate(feeds: Mapping[str, Array]) -> list[Array]:
            fed = graph.feed(feeds)
            arguments = [tvm.runtime.tensor(np.ascontiguousarray(fed[symbol.name])) for symbol in graph.inputs]
            # Outputs may be hundreds of MiB: they are not copied, and nobody but the caller holds them.
            outputs = [np.from_dlpack(output) for output in main(*arguments)]
            release()
            return [storage.read(output) for storage, output in zip(storages, outputs, strict=True)]

        return evaluate
