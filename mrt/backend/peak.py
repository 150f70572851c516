"""The multiplications that a core does at most, measured by a loop of the instruction that kernels multiply with.

A processor lowers its clock for milliseconds after work that keeps its units and caches busy, and raises it again in
such a loop: a share of the peak is to be taken of loops that are measured in turns with what they are compared to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import tirx
from tvm.tirx.op import address_of

from mrt.backend.kernels.dot_instruction import DotInstruction
from mrt.backend.kernels.dot_instructions import dots_of
from mrt.backend.machine import Machine
from mrt.backend.tir.expressions import llvm_call

ACCUMULATORS = 12
"""Enough sums for two instructions at a time with four cycles each."""
TILES, TILE_PRODUCTS, PALETTE_WORDS = 4, 16 * 16 * 64, 16
VECTOR_STEPS, TILE_STEPS = 200_000, 20_000
"""Of the loops that measure a peak: a third of a millisecond."""
ALONE = 30
"""Calls of the loop by itself, after which the clock has long settled."""


@dataclass(frozen=True)
class Peak:
    """A loop of an instruction.

    instruction: its name, LLVM's if it begins with `llvm`. products: what a call forms. call: gives its seconds.
    """

    instruction: str
    products: int
    call: Callable[[], float]

    def alone(self) -> float:
        """Products in a second of the fastest of calls that follow each other."""
        return self.products / min(self.call() for _ in range(ALONE))


def peak_of(machine: Machine, is_float: bool = False) -> Peak | None:
    """The loop of the instruction that multiplies any bytes exactly on the machine, or floats; None where it has none.

    Pairs of products may be formed faster (`DotInstruction.widens`), so that a share of the peak may be above 1.

    machine: one whose code runs here.
    """
    if is_float:
        return _peak_of_floats(machine)
    dot = next((each for each in dots_of(machine) if not each.widens), None)
    if dot is None:
        return None
    if machine.has_tiles:
        return Peak("tdpbusd", TILES * TILE_PRODUCTS * TILE_STEPS, _timed(_tile_loop(), machine))
    products = ACCUMULATORS * machine.lanes * dot.depth * VECTOR_STEPS
    return Peak(dot.llvm, products, _timed(_vector_loop("int32", machine.lanes, partial(_added, dot)), machine))


def _peak_of_floats(machine: Machine) -> Peak | None:
    """Of one instruction that multiplies and adds, which all CPUs with AVX2 or NEON have."""
    if not machine.has("avx2") and not machine.has("neon"):
        return None
    lanes = machine.lanes

    def added(held: Any) -> Any:
        # The sum is a factor of the product: one of constants would be formed while compiling.
        factor = tirx.Broadcast(tirx.const(0.5, "float32"), lanes)
        return llvm_call(f"float32x{lanes}", f"llvm.fma.v{lanes}f32", held, factor, factor)

    return Peak("fma", ACCUMULATORS * lanes * VECTOR_STEPS, _timed(_vector_loop("float32", lanes, added), machine))


def _added(dot: DotInstruction, held: Any) -> Any:
    """The sums `held`, to which an instruction's products were added.

    Where it does not add, the sums are factors, too: products of constants would be formed while compiling.
    """
    lanes = dot.bits // 32
    data, weight = (f"{each}x{lanes * dot.depth}" for each in (dot.data, dot.weight))
    ones = tirx.Broadcast(tirx.const(0x01010101, "int32"), lanes)
    factor = tirx.reinterpret(weight, ones)
    if dot.adds:
        return llvm_call(f"int32x{lanes}", dot.llvm, held, tirx.reinterpret(data, ones), factor)
    return held + llvm_call(f"int32x{lanes}", dot.llvm, tirx.reinterpret(data, held), factor)


def _timed(function: Any, machine: Machine) -> Callable[[], float]:
    """A call of a PrimFunc that takes one buffer, which gives its seconds."""
    module = tvm.compile(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}), machine.target)
    (memory,) = function.params
    held = tvm.runtime.tensor(np.zeros([int(extent) for extent in memory.shape], str(memory.dtype)))
    run: Callable[[Any], Any] = module["main"]

    def call() -> float:
        began = time.perf_counter()
        run(held)
        return time.perf_counter() - began

    return call


def _vector_loop(dtype: str, lanes: int, added: Callable[[Any], Any]) -> Any:
    """Sums of a dtype that are independent of each other, each in a register.

    added: what a step makes of the sum of a register.
    """
    memory = tirx.decl_buffer((ACCUMULATORS * lanes,), dtype, "memory")
    body = []
    for i in range(ACCUMULATORS):
        place = [tirx.Ramp(tirx.const(i * lanes, "int32"), 1, lanes)]
        body.append(tirx.BufferStore(memory, added(tirx.BufferLoad(memory, place)), place))
    return _repeated(memory, body, VECTOR_STEPS)


def _tile_loop() -> Any:
    """Sums in four tiles; what is multiplied is 0, which takes as long."""
    memory = tirx.decl_buffer((PALETTE_WORDS,), "int32", "memory")
    rows, widths = [0] * 16, [0] * 32
    for tile in range(8):
        rows[tile], widths[2 * tile] = 16, 64
    palette = bytes([1] + [0] * 15 + widths + rows)
    stores = [
        tirx.BufferStore(memory, tirx.const(int.from_bytes(palette[4 * i : 4 * i + 4], "little"), "int32"), [i])
        for i in range(PALETTE_WORDS)
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
