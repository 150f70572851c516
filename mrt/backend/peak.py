"""The multiplications that a core does at most, measured by a loop of the instruction that kernels multiply with.

A processor lowers its clock for milliseconds after work that keeps its units and caches busy, and raises it again in
such a loop: a share of the peak is to be taken of loops that are measured in turns with what they are compared to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.tirx.op import address_of

from mrt.backend.kernels.dot_instructions import dots_of
from mrt.backend.kernels.x86.vnni.dots import VPDPBUSD_512
from mrt.backend.machine import Machine
from mrt.backend.tir.expressions import llvm_call

ACCUMULATORS, LANES, DOT_PRODUCTS = 12, 16, 64
"""Enough sums for two instructions at a time with four cycles each; products of one vpdpbusd of 512 bits."""
TILES, TILE_PRODUCTS = 4, 16 * 16 * 64
VECTOR_STEPS, TILE_STEPS = 200_000, 20_000
"""Of the loops that measure a peak: a third of a millisecond."""
ALONE = 30
"""Calls of the loop by itself, after which the clock has long settled."""


@dataclass(frozen=True)
class Peak:
    """A loop of an instruction: its name, the products that a call forms, and a call, which gives its seconds."""

    instruction: str
    products: int
    call: Callable[[], float]

    def alone(self) -> float:
        """Products in a second of the fastest of calls that follow each other."""
        return self.products / min(self.call() for _ in range(ALONE))


def peak_of(machine: Machine, is_float: bool = False) -> Peak | None:
    """The loop of the instruction that multiplies bytes on the machine, or floats; None where that is none of 512 bits.

    machine: one whose code runs here.
    """
    if is_float:
        if machine.vector_bits != 512:
            return None
        call = _timed(_vector_loop("llvm.fma.v16f32", "float32"), machine)
        return Peak("vfmadd231ps", ACCUMULATORS * LANES * VECTOR_STEPS, call)
    if VPDPBUSD_512 not in dots_of(machine):
        return None
    if machine.has_tiles:
        return Peak("tdpbusd", TILES * TILE_PRODUCTS * TILE_STEPS, _timed(_tile_loop(), machine))
    call = _timed(_vector_loop(VPDPBUSD_512.llvm), machine)
    return Peak("vpdpbusd", ACCUMULATORS * DOT_PRODUCTS * VECTOR_STEPS, call)


def _timed(function: Any, machine: Machine) -> Callable[[], float]:
    """A call of a PrimFunc that takes one buffer of ACCUMULATORS x LANES elements, which gives its seconds."""
    module = tvm.compile(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), machine.target)
    memory = tvm.runtime.tensor(np.zeros(ACCUMULATORS * LANES, str(function.params[0].dtype)))
    run: Callable[[Any], Any] = module["main"]

    def call() -> float:
        began = time.perf_counter()
        run(memory)
        return time.perf_counter() - began

    return call


def _vector_loop(instruction: str, dtype: str = "int32") -> Any:
    """Sums of a dtype that are independent of each other, each in a register.

    A product of floats has the sum as a factor: one of constants would be formed while compiling.
    """
    memory = tirx.decl_buffer((ACCUMULATORS * LANES,), dtype, "memory")
    body = []
    for i in range(ACCUMULATORS):
        place = [tirx.Ramp(tirx.const(i * LANES, "int32"), 1, LANES)]
        if dtype == "int32":
            factor = tirx.reinterpret("int8x64", tirx.Broadcast(tirx.const(0x01010101, "int32"), LANES))
        else:
            factor = tirx.Broadcast(tirx.const(0.5, dtype), LANES)
        held = tirx.BufferLoad(memory, place)
        body.append(tirx.BufferStore(memory, llvm_call(f"{dtype}x{LANES}", instruction, held, factor, factor), place))
    return _repeated(memory, body, VECTOR_STEPS)


def _tile_loop() -> Any:
    """Sums in four tiles; what is multiplied is 0, which takes as long."""
    memory = tirx.decl_buffer((ACCUMULATORS * LANES,), "int32", "memory")
    rows, widths = [0] * 16, [0] * 32
    for tile in range(8):
        rows[tile], widths[2 * tile] = 16, 64
    palette = bytes([1] + [0] * 15 + widths + rows)
    stores = [
        tirx.BufferStore(memory, tirx.const(int.from_bytes(palette[4 * i : 4 * i + 4], "little"), "int32"), [i])
        for i in range(16)
    ]

    def call(name: str, *arguments: Any) -> Any:
        return tirx.Evaluate(tirx.call_llvm_intrin("int32", f"llvm.x86.{name}", *arguments))

    products = [
        call("tdpbusd", *(tirx.const(tile, "int8") for tile in (i, 4 + i // 2, 6 + i % 2))) for i in range(TILES)
    ]
    begin = call("ldtilecfg", address_of(tirx.BufferLoad(memory, [0])))
    return _repeated(memory, products, TILE_STEPS, [*stores, begin], [call("tilerelease")])


def _repeated(memory: Any, body: list[Any], steps: int, before: Sequence[Any] = (), after: Sequence[Any] = ()) -> Any:
    """A PrimFunc that runs `body` so many times."""
    step = tirx.Var("step", "int32")
    zero, times = tirx.const(0, "int32"), tirx.const(steps, "int32")
    loop = tirx.For(step, zero, times, tirx.ForKind.SERIAL, tirx.SeqStmt(body))
    return tirx.PrimFunc([memory], tirx.SeqStmt([*before, loop, *after]) if before else loop).with_attr(
        "tirx.noalias", True
    )
