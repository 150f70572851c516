"""Machine code of a model that calls nothing of TVM, for a shared library with an interface of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mrt.backend.build import called_objects, compiling, joined_calls, lower_model
from mrt.backend.job import Job
from mrt.backend.link.calls import SYMBOL_PREFIX
from mrt.backend.link.kernel_cache import KernelCache
from mrt.backend.link.program import FunctionMemory
from mrt.runtime import CALLS, REQUEST, Linker, Metadata
from mrt.symbol import TensorType


@dataclass(frozen=True, eq=False)
class NativeFunction:
    """A function of machine code.

    symbol: what a linker knows it by. It takes TVM's packed arguments: tensors of each input, the constants, its
    workspace and its outputs. inputs, outputs: names and types. memory: what it takes besides the inputs.
    """

    symbol: str
    inputs: tuple[tuple[str, TensorType], ...]
    outputs: tuple[tuple[str, TensorType], ...]
    memory: FunctionMemory


@dataclass(frozen=True, eq=False)
class NativeCode:
    """objects: files to be linked, by content. constants: the bytes that all functions share. functions: MAIN, REAL.

    needs_tiles: whether a process must ask for tile registers before it calls one. linker: what links them.
    """

    objects: tuple[bytes, ...]
    constants: bytes
    functions: dict[str, NativeFunction]
    needs_tiles: bool
    metadata: Metadata
    linker: Linker


def compile_native(job: Job, cache: KernelCache | None = None) -> NativeCode:
    """The kernels of `compile_model`, and its functions, without the virtual machine's part.

    The errors are those of `lower_model`. cache: of kernels that were compiled before; the code is the same without.
    """
    lowered = lower_model(job, cache=cache)
    with compiling(job.machine):
        builder = lowered.builder
        joined = joined_calls(builder.module(), lowered.compiler, shelf=builder.shelf, programs=builder.programs)
        objects = called_objects(joined, lowered.compiler, lowered.objects, job.machine)
    functions = {
        name: NativeFunction(
            f"{SYMBOL_PREFIX}{name}{CALLS}",
            tuple((symbol.name, symbol.type) for symbol in made.inputs),
            tuple((symbol.name, symbol.type) for symbol in made.outputs),
            joined.memory[name],
        )
        for name, made in lowered.graphs.items()
    }
    constants = np.from_dlpack(joined.constants).tobytes()
    return NativeCode(objects, constants, functions, REQUEST in joined.memory, lowered.metadata, job.linker)
