"""Runs code for another processor in an emulator of it: kernels as they are compiled, and what calls them.

TVM's runtime is not there for such a processor. The code takes nothing of it but tensors as it describes them, which a
program in C makes, so that both are linked to one executable.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tvm import tirx

from mrt.backend.build import compile_linkable
from mrt.backend.kernels.generic.prefetch_next_kernel import prefetching_steps
from mrt.backend.link.kernel_objects import KernelObjects, object_compiler
from mrt.backend.link.one_function import Joined, join_calls
from mrt.backend.lowering.module import ModuleBuilder
from mrt.backend.machine import Machine
from mrt.backend.memory.alignment import aligned
from mrt.runtime import CALLS, MAIN, Linkable, Linker
from mrt.symbol import Array, Graph, Symbol
from tests.emulation import Emulation

CODES = {"int": 0, "uint": 1, "float": 2, "bool": 6}
"""DLPack's numbers of kinds of elements."""

PROGRAM = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct { void *data; int32_t device[2]; int32_t rank; uint8_t code, bits; uint16_t lanes;
                 int64_t *shape, *strides; uint64_t offset; } Tensor;
typedef struct { int32_t kind; uint32_t zero; void *value; } Any;
typedef int (*Task)(int number, void *environment, void *data);
struct environment { void *handle; int32_t tasks; };

/* Two tasks, one after the other. */
static int launch(Task task, void *data, int tasks) {
  struct environment environment = {0, 2};
  for (int i = 0; i < 2; ++i) if (task(i, &environment, data)) return -1;
  return 0;
}
static void *allocate(int kind, int device, uint64_t size, int code, int bits) {
  return aligned_alloc(64, (size + 63) / 64 * 64);
}
static int release(int kind, int device, void *memory) { free(memory); return 0; }
static void fail(const char *kind, const char *message) { fprintf(stderr, "%s: %s\\n", kind, message); }
int (*__TVMBackendParallelLaunch)(Task, void *, int) = launch;
void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = allocate;
int (*__TVMBackendFreeWorkspace)(int, int, void *) = release;
void (*__TVMFFIErrorSetRaisedFromCStr)(const char *, const char *) = fail;
int __tvm_ffi_main_calls(void *, const Any *, int32_t, Any *);

"""
"""What TVM hands to a function is a pointer to each tensor, of the kind DLTensor."""


@dataclass(frozen=True)
class Emulated:
    """A `Runner` of code for an LLVM target, by the emulator of a CPU, which has no instruction that this one lacks.

    target: keys of a target. emulation: of its machines. saved: whether the code is linked to a library as modules are,
    which the program loads, and not into the program.
    """

    target: Mapping[str, Any]
    emulation: Emulation
    saved: bool = False

    def prepare(self, graph: Graph) -> Callable[[Mapping[str, Array]], list[Array]]:
        """The program of the graph, in a folder that is there as long as what is given."""
        machine = Machine.of(self.target)
        module_builder = ModuleBuilder(machine)
        module_builder.add(graph, MAIN)
        module = module_builder.module()
        linker, objects = Linker(self.target["mtriple"]), KernelObjects()
        linkable = compile_linkable(module, machine, object_compiler(machine, objects), objects, linker)
        kernels = {v.name_hint: made for v, made in module.functions.items() if isinstance(made, tirx.PrimFunc)}
        joined = join_calls(module, (), {name for name, made in kernels.items() if prefetching_steps(made)})
        folder = tempfile.TemporaryDirectory()
        program = self._linked(joined, linkable, Path(folder.name))

        def run(feeds: Mapping[str, Array]) -> list[Array]:
            fed = [np.ascontiguousarray(feeds[symbol.name], symbol.dtype).tobytes() for symbol in graph.inputs]
            given = b"".join([*fed, np.from_dlpack(joined.constants).tobytes()])
            done = subprocess.run([*self.emulation.emulator, program], input=given, capture_output=True, check=False)
            assert done.returncode == 0, f"status {done.returncode}: {done.stderr.decode()} in {folder.name}"
            return _outputs(graph, done.stdout)

        return run

    def _linked(self, joined: Joined, linkable: Linkable, folder: Path) -> Path:
        main = folder / "main.c"
        main.write_text(PROGRAM + _main(joined.calls[MAIN + CALLS].parameters), encoding="ascii")
        if self.saved:
            linkable.link(folder / "model.so")
            parts = [folder / "model.so", f"-Wl,-rpath,{folder}"]
        else:
            parts = [folder / f"part{place}.o" for place in range(len(linkable.objects))]
            for part, content in zip(parts, linkable.objects, strict=True):
                part.write_bytes(content)
            parts += ["-static", "-lm"]
        command = [self.emulation.compiler, "-O1", main, *parts, "-o", folder / "program"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return folder / "program"


def emulated(target: Mapping[str, Any], cpu: str, saved: bool = False) -> Emulated:
    """A runner of code for a target that has an `mtriple`, by the emulator of `cpu`; skips as `Emulation.of` does."""
    return Emulated(target, Emulation.of(target["mtriple"].split("-")[0], cpu), saved)


def _main(parameters: Sequence[Any]) -> str:
    """Reads all tensors but the workspace and the outputs, which are the last ones, calls, and writes the outputs."""
    lines, tensors = [], []
    for place, buffer in enumerate(parameters):
        dtype = np.dtype(str(buffer.dtype))
        shape = [int(length) for length in buffer.shape]
        size = dtype.itemsize * int(np.prod(shape))
        lines.append(f"static uint8_t memory{place}[{size}] __attribute__((aligned(64)));")
        lines.append(f"static int64_t shape{place}[] = {{{', '.join(map(str, shape))}}};")
        code = CODES[dtype.name.rstrip("0123456789")]
        tensors.append(
            f"{{memory{place}, {{1, 0}}, {len(shape)}, {code}, {8 * dtype.itemsize}, 1, shape{place}, 0, 0}}"
        )
    count = len(parameters)
    read = " && ".join(f"fread(memory{i}, sizeof memory{i}, 1, stdin) == 1" for i in range(count - 2))
    last = f"memory{count - 1}"
    lines += [
        f"static Tensor tensors[] = {{{', '.join(tensors)}}};",
        "int main(void) {",
        f"  Any arguments[{count}], result = {{0, 0, 0}};",
        f"  for (int i = 0; i < {count}; ++i) arguments[i] = (Any){{7, 0, &tensors[i]}};",
        f"  if (!({read})) return 2;",
        f"  if (__tvm_ffi_main_calls(0, arguments, {count}, &result)) return 3;",
        f"  return fwrite({last}, sizeof {last}, 1, stdout) == 1 ? 0 : 4;",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _outputs(graph: Graph, content: bytes) -> list[Array]:
    """The tensors that follow each other in the memory of all outputs; what is given twice lies there once."""
    begins: dict[Symbol, int] = {}
    end = 0
    for symbol in graph.outputs:
        if graph.value(symbol) is None and symbol not in begins:
            begins[symbol] = end
            end += aligned(np.dtype(symbol.dtype).itemsize * symbol.type.size)
    return [
        np.frombuffer(content, s.dtype, s.type.size, begins[s]).reshape(s.shape)
        if s in begins
        else np.asarray(graph.value(s))
        for s in graph.outputs
    ]
