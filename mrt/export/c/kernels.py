"""Kernels: a region of the graph as one plain C function."""

from __future__ import annotations

from dataclasses import dataclass

from mrt.backend.fusion.regions import Region
from mrt.backend.machine import one_line
from mrt.errors import CompilationError
from mrt.export.c.lowering import lower_region
from mrt.export.c.printer import Printer, Scratch, UnprintableError
from mrt.export.c_text import C_TYPES

OUTPUT = "output"
"""What a kernel calls its output; its inputs are called input0, input1, …."""


@dataclass(frozen=True)
class Kernel:
    """A C function `name` that takes pointers to what it reads, to its output, and to its scratch buffers.

    text: its definition, without a storage class. reads: the inputs of its region that it takes, in order. scratch:
    its buffers, in order.
    """

    name: str
    text: str
    reads: tuple[int, ...]
    scratch: tuple[Scratch, ...]


def write_kernel(region: Region, name: str) -> Kernel:
    """The kernel of a region.

    Raises CompilationError naming the region's output where TVM fails, or where its code has no form in integer C.
    """
    output = region.output
    names = [*(f"input{i}" for i in range(len(region.inputs))), OUTPUT]
    try:
        function = lower_region(region)
        printer = Printer(dict(zip(function.params, names, strict=True)))
        printer.write(function.body)
    except UnprintableError as error:
        raise CompilationError(f"{output.name} ({output.op}): its code has no form in integer C: {error}") from None
    except (RuntimeError, ValueError, TypeError) as error:
        raise CompilationError(f"{output.name} ({output.op}): TVM fails: {one_line(error)}") from error
    reads = tuple(i for i in range(len(region.inputs)) if names[i] in printer.read)
    parameters = [
        *(f"const {C_TYPES[region.inputs[i].dtype]} *restrict {names[i]}" for i in reads),
        f"{C_TYPES[output.dtype]} *restrict {OUTPUT}",
        *(f"{C_TYPES[part.dtype]} *restrict {part.name}" for part in printer.scratch),
    ]
    body = "\n".join(printer.lines)
    return Kernel(name, f"void {name}({', '.join(parameters)}) {{\n{body}\n}}", reads, tuple(printer.scratch))
