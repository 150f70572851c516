"""The runner that compiles graphs with TVM: what calibration and evaluation run on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from mrt.backend.build import compile_executable
from mrt.backend.emit import build_module
from mrt.backend.machine import Machine, Target
from mrt.symbol import Array, Evaluate, Graph


@dataclass(frozen=True)
class TvmRunner:
    """Runs graphs compiled for `target`. Each `prepare` compiles anew and nothing is kept between them."""

    target: Target = "llvm"

    def prepare(self, graph: Graph) -> Evaluate:
        """A function from arrays by input name to the list of outputs; CompilationError if TVM fails.

        The function raises DataError for feeds that do not fit the graph's inputs.
        """
        machine = Machine.of(self.target)
        executable = compile_executable(build_module(graph, target=self.target), machine)
        device = tvm.cpu()
        main = relax.VirtualMachine(executable, device)["main"]

        def evaluate(feeds: Mapping[str, Array]) -> list[Array]:
            fed = graph.feed(feeds)
            arguments = [tvm.runtime.tensor(np.ascontiguousarray(fed[symbol.name])) for symbol in graph.inputs]
            return [output.numpy() for output in main(*arguments)]

        return evaluate
