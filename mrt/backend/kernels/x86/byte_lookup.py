"""Look-up of bytes by bytes: operators of TVM that vectors of places go through whole, the table in registers.

A table is in memory twice: as it is, for places that are read one by one, and by differences, for instructions that
pick of one row of 16 bytes at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import ir, tirx

from mrt.backend.kernels.x86.avx2.joined_lookups import JOINED
from mrt.backend.kernels.x86.lookup_operator import look_up, looked_up_in, register_lookup
from mrt.backend.machine import Machine
from mrt.backend.tir.expressions import Expression, Tensor, bind, constant, dtype_of, llvm_call, shuffled
from mrt.symbol import Array

ENTRIES, ROW = 256, 16
"""Of a table: one for each byte; of a row of it."""
VPERMI2B = "llvm.x86.avx512.vpermi2var.qi.512"
Entries = Callable[[int, int], Expression]
"""(first, count) -> so many bytes of a table in memory from the first one, as a vector."""


@dataclass(frozen=True)
class ByteLookup(ABC):
    """Instructions that look up `lanes` bytes at once.

    operator: what TVM calls them. features: of the machine. least: how many places pay; fewer are read one by one.
    As a form of parameters it is plain data.
    """

    operator: str
    features: tuple[str, ...]
    lanes: int
    least: int

    @abstractmethod
    def found(self, entries: Entries, places: Expression) -> Expression:
        """The entries at `lanes` places."""

    def __call__(self, table: Tensor, place: Expression) -> Expression:
        """table[place] of what `table_of_bytes` gives; what TVM would take apart for a vector of places stays whole."""
        return look_up(self.operator, table, place)

    def lowered(self, call: Any) -> Expression:
        """What TVM puts in the place of a call, whose places are a byte or a vector of any number of them."""
        _, memory, places = looked_up_in(call)
        count = int(places.ty.dtype.lanes)
        if count < self.least or (count > self.lanes and count % self.lanes):
            return tirx.BufferLoad(memory, [places.astype(dtype_of(places).replace("uint8", "int32"))])

        def entries(first: int, length: int) -> Expression:
            return tirx.BufferLoad(memory, [tirx.Ramp(constant(first, "int32"), 1, length)])

        return bind(places, lambda held: self._in_parts(entries, held, count))

    def _in_parts(self, entries: Entries, places: Expression, count: int) -> Expression:
        if count == self.lanes:
            return self.found(entries, places)
        if count < self.lanes:
            wide = shuffled([places] * -(-self.lanes // count), range(self.lanes))
            return shuffled([bind(wide, lambda held: self.found(entries, held))], range(count))
        parts = [shuffled([places], range(first, first + self.lanes)) for first in range(0, count, self.lanes)]
        return shuffled([bind(part, lambda held: self.found(entries, held)) for part in parts], range(count))


def byte_lookup(machine: Machine) -> ByteLookup | None:
    """What looks up bytes on a machine; None where they are read one by one."""
    return next((each for each in LOOKUPS if machine.has(*each.features)), None)


def table_of_bytes(table: Array, offset: int, dtype: str) -> Array:
    """uint8 [2 · 256]: the table by the bytes of integers of `dtype`, and then what each row has of the one before.

    table: of a dtype of 8 bits. Entry `x & 255` is table[x + offset]; what lies beyond its ends has the entry there.
    The rows of either half of the differences are exclusive ors with the row before, the first one with 0.
    """
    places = np.arange(ENTRIES, dtype=np.uint8).view(dtype).astype(np.int64) + offset
    plain = np.ascontiguousarray(table[np.clip(places, 0, len(table) - 1)]).view(np.uint8)
    halves = plain.reshape(2, -1, ROW)
    before = np.concatenate([np.zeros_like(halves[:, :1]), halves[:, :-1]], axis=1)
    return np.concatenate([plain, (halves ^ before).ravel()])


def _is_upper(places: Expression) -> Expression:
    """Whether places are in the upper half of the table."""
    lanes = int(dtype_of(places).partition("x")[2])
    return tirx.reinterpret(f"int8x{lanes}", places) < tirx.Broadcast(constant(0, "int8"), lanes)


@dataclass(frozen=True)
class Permuted(ByteLookup):
    """By vpermi2b, which picks of 128 bytes by the lower 7 bits of each place."""

    def found(self, entries: Entries, places: Expression) -> Expression:
        lower, upper = (
            llvm_call("uint8x64", VPERMI2B, entries(first, 64), places, entries(first + 64, 64))
            for first in (0, ENTRIES // 2)
        )
        return tirx.Select(_is_upper(places), upper, lower)


@dataclass(frozen=True)
class Shuffled(ByteLookup):
    """By pshufb, which picks of 16 bytes by the lower 4 bits of each place, and 0 where the place is negative.

    Of a place x of a half, x - 16 k is negative from the first row k on that begins behind x: so the rows up to that
    of x are picked from, and the exclusive or of their differences is the entry. Places of the other half are negative.
    instruction: LLVM's name of pshufb for so many lanes.
    """

    instruction: str

    def found(self, entries: Entries, places: Expression) -> Expression:
        lanes, signed = self.lanes, f"int8x{self.lanes}"
        halves = places, places ^ tirx.Broadcast(constant(ENTRIES // 2, "uint8"), lanes)
        made: Expression = None
        for number in range(ENTRIES // ROW):
            half, before = divmod(number * ROW, ENTRIES // 2)
            row = shuffled([entries(ENTRIES + number * ROW, ROW)] * (lanes // ROW), range(lanes))
            place = tirx.reinterpret(signed, halves[half])
            if before:
                place = llvm_call(signed, "llvm.ssub.sat", place, tirx.Broadcast(constant(before, "int8"), lanes))
            picked = llvm_call(f"uint8x{lanes}", self.instruction, row, place)
            made = picked if made is None else made ^ picked
        return made


VBMI = Permuted("tirx.mrt_lookup_vbmi", ("avx512vbmi", "avx512bw"), 64, 8)
AVX512 = Shuffled("tirx.mrt_lookup_avx512", ("avx512bw",), 64, 16, "llvm.x86.avx512.pshuf.b.512")
AVX2 = Shuffled("tirx.mrt_lookup_avx2", ("avx2",), 32, 16, "llvm.x86.avx2.pshuf.b")
LOOKUPS = (VBMI, AVX512, AVX2)
"""The best first."""

for each in LOOKUPS:
    register_lookup(each.operator, each.least, each.lowered)
ir.register_op_attr(AVX2.operator, JOINED, True)
