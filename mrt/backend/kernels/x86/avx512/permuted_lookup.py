"""Look-up of int32 in short tables, such as exponentials for a softmax of 8 bits: the table in registers.

vpermi2d picks of 32 entries by the lower 5 bits of each of 16 places; which 32 are meant the higher bits say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from mrt.backend.kernels.x86.lookup_operator import by_parts, look_up, looked_up_in, register_lookup
from mrt.backend.kernels.x86.picked_lookup import picks
from mrt.backend.machine import Machine
from mrt.backend.tir.expressions import Expression, Tensor, constant, llvm_call
from mrt.symbol import Array

OPERATOR = "tirx.mrt_permuted"
LANES = 16
VPERMI2D, ENTRIES = "llvm.x86.avx512.vpermi2var.d.512", 2 * LANES
"""An instruction that picks of two vectors, and how many entries these hold."""
MOST_PICKED, MOST_GATHERED = 256, 128
"""The longest tables for which this is faster than what reads entries otherwise: measured on Zen 5 beside entries that
are read one by one, and by counts of instructions beside gathers."""


def permutes(table: Array, machine: Machine) -> bool:
    """Whether a machine looks up places of a table fastest in registers."""
    return machine.has("avx512f") and len(table) <= (MOST_PICKED if picks(machine) else MOST_GATHERED)


def table_of_vectors(table: Array) -> Array:
    """The table as int32, with zeros up to a power of 2 times ENTRIES."""
    length = ENTRIES
    while length < len(table):
        length *= 2
    return np.pad(table.astype(np.int32), (0, length - len(table)))


def permuted(table: Tensor, place: Expression) -> Expression:
    """table[place] of what `table_of_vectors` gives, whose place is an int32 that lies in it."""
    return look_up(OPERATOR, table, place)


def _lowered(call: Any) -> Expression:
    _, memory, places = looked_up_in(call)
    lanes, length = int(places.ty.dtype.lanes), int(memory.shape[0])
    if lanes % LANES:
        return tirx.BufferLoad(memory, [places])
    return by_parts(places, lanes, LANES, lambda held: _picked(memory, held, 0, length))


def _picked(memory: Any, places: Expression, first: int, length: int) -> Expression:
    """The entries at places that are `first` to `first + length` modulo `length`, as far as lower bits say."""
    if length == ENTRIES:
        low, high = (
            tirx.BufferLoad(memory, [tirx.Ramp(constant(at, "int32"), 1, LANES)]) for at in (first, first + LANES)
        )
        return llvm_call(f"int32x{LANES}", VPERMI2D, low, places, high)
    half = length // 2
    lower, upper = (_picked(memory, places, at, half) for at in (first, first + half))
    zero, bit = (tirx.Broadcast(constant(value, "int32"), LANES) for value in (0, half))
    return tirx.Select((places & bit) != zero, upper, lower)


register_lookup(OPERATOR, LANES, _lowered)
