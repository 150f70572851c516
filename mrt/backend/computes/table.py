"""Look-up tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import te, tirx

from mrt.backend.kernels.x86.avx512.lookup import gathers, looked_up
from mrt.backend.kernels.x86.avx512.on_parabolas import draws_parabolas, on_parabola, words_of
from mrt.backend.kernels.x86.avx512.permuted_lookup import permuted, permutes, table_of_vectors
from mrt.backend.kernels.x86.byte_lookup import ByteLookup, byte_lookup, table_of_bytes
from mrt.backend.kernels.x86.picked_lookup import PLACE, picked, picks
from mrt.backend.memory.storage import BYTES, Storage, View
from mrt.backend.te.operands import Operand, Packed, Surroundings
from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import broadcast, inlined
from mrt.backend.tir.expressions import Expression, Tensor, bind, combined, constant, unsimplified
from mrt.symbol import Array, Symbol
from mrt.symbol.bounds import DTYPE_RANGES
from mrt.symbol.operators.table import TableLookup
from mrt.symbol.parabolas import SEGMENT_BITS, WORD, parabolas_of
from mrt.symbol.types import type_of

WORDS = (*BYTES, "int16")
"""Dtypes whose integers int16 holds."""
MOST_PLACE = 2**16 - 1
"""The last place of the longest table."""
PERMUTED, GATHERED, PICKED = "permuted", "gathered", "picked"
"""The forms of a table that registers hold, of one whose entries gather instructions read, both of int32 then, and of
one whose entries are read one by one."""


@dataclass(frozen=True)
class _OnParabolas:
    """The form of a table by parabolas. step: 2^step places are a segment. finer: bits by which bases are finer than
    entries. The parameter beside the parabolas holds the first and the last place of data that differ, where the first
    segment begins, and what stands for bases of 0."""

    step: int
    finer: int


def pack_table(symbol: Symbol[TableLookup], table: Array, surroundings: Surroundings) -> Packed | None:
    dtype, machine = symbol.inputs[0].dtype, surroundings.machine
    if dtype in BYTES and table.dtype in WORDS and (form := byte_lookup(machine)) is not None:
        parts = [table_of_bytes(part, symbol.operator.offset, dtype) for part in _bytes_of_entries(table)]
        return Packed(form, tuple(parts), tuple(Storage.plain(type_of(part)) for part in parts))
    if table.dtype.kind == "f":
        return None
    if permutes(table, machine):
        laid = table_of_vectors(table)
        return Packed(PERMUTED, (laid,), (Storage.plain(type_of(laid)),))
    parabolas = _packed_parabolas(symbol, table) if draws_parabolas(machine) else None
    if parabolas is not None:
        return parabolas
    if picks(machine):
        return Packed.as_is(table, PICKED)
    return Packed.as_is(table.astype(np.int32), GATHERED) if gathers(machine) else None


def _packed_parabolas(symbol: Symbol[TableLookup], table: Array) -> Packed | None:
    """The parabolas of a table; None where it lies on none, or where data is too narrow for its places."""
    parabolas = parabolas_of(table)
    if parabolas is None:
        return None
    frame, (low, high) = parabolas.frame, DTYPE_RANGES[_narrow(symbol)]
    first, last, origin = (place - symbol.operator.offset for place in (frame.first, frame.last, frame.origin))
    if not low <= first <= last <= high:
        return None
    arrays = words_of(parabolas), np.array([first, last, origin, frame.least], np.int32)
    return Packed(_OnParabolas(frame.step, frame.finer), arrays, tuple(Storage.plain(type_of(each)) for each in arrays))


def _narrow(symbol: Symbol[TableLookup]) -> str:
    """The dtype in which places are held between the first and the last one."""
    return "int16" if symbol.inputs[0].dtype in WORDS else "int32"


def _bytes_of_entries(table: Array) -> list[Array]:
    """The bytes of each entry, the lowest first."""
    return [table] if table.itemsize == 1 else [(table >> 8 * n).astype(np.uint8) for n in range(table.itemsize)]


@compute(TableLookup, kind=Kind.ELEMENTWISE, repeats_input=True, random_access=(1,), packings={1: pack_table})
def table_lookup(symbol: Symbol[TableLookup], data: Tensor, table: View | Operand) -> View:
    """table[data + offset]. The data is proven to lie in the table; its padding in memory is clamped to it."""
    if isinstance(table, Operand) and isinstance(table.form, ByteLookup):
        return _bytes(symbol, data, table.form, [view.tensor for view in table.views])
    if isinstance(table, Operand) and isinstance(table.form, _OnParabolas):
        return _on_parabolas(symbol, data, table.form, *(view.tensor for view in table.views))
    if isinstance(table, Operand) and table.form == PICKED:
        return _picked(symbol, data, table.views[0].tensor)
    last = constant(symbol.inputs[1].shape[0] - 1, "int32")
    offset = constant(symbol.operator.offset, "int32")

    def element(*at: Expression) -> Expression:
        place = combined(lambda x: x.astype("int32") + offset, [broadcast(data, at, symbol.shape)])
        place = te.max(te.min(place, last), constant(0, "int32"))
        if isinstance(table, Operand):
            found = permuted if table.form == PERMUTED else looked_up
            return found(table.views[0].tensor, place).astype(symbol.dtype)
        return table(place)

    return inlined(symbol.shape, symbol.dtype, element)


def _bytes(symbol: Symbol[TableLookup], data: Tensor, look_up: ByteLookup, tables: Sequence[Tensor]) -> View:
    """The same by the byte that holds the data. tables: of each byte of the entries; they have some for any place."""

    def entry(place: Expression) -> Expression:
        lowest, *others = (look_up(table, place) for table in tables)
        word = "uint16" if others else "uint8"
        for number, byte in enumerate(others, 1):
            lowest = lowest.astype(word) | (byte.astype(word) << constant(8 * number, word))
        return tirx.reinterpret(symbol.dtype, lowest)

    def element(*at: Expression) -> Expression:
        place = tirx.reinterpret("uint8", broadcast(data, at, symbol.shape))
        return bind(place, entry) if len(tables) > 1 else entry(place)

    return inlined(symbol.shape, symbol.dtype, element)


def _picked(symbol: Symbol[TableLookup], data: Tensor, table: Tensor) -> View:
    """The same by places of 16 bits. Sums of data of 16 bits and the offset are those places modulo 2^16."""
    last, offset = symbol.inputs[1].shape[0] - 1, symbol.operator.offset

    def element(*at: Expression) -> Expression:
        x = broadcast(data, at, symbol.shape)
        if symbol.inputs[0].dtype in WORDS:
            first = constant(offset % (MOST_PLACE + 1), PLACE)
            place = unsimplified(tirx.reinterpret(PLACE, x.astype("int16")) + first)
            return picked(table, te.min(place, constant(last, PLACE)) if last < MOST_PLACE else place)
        place = combined(lambda x: x + constant(offset, "int32"), [x])
        return picked(table, te.max(te.min(place, constant(last, "int32")), constant(0, "int32")).astype(PLACE))

    return inlined(symbol.shape, symbol.dtype, element)


def _on_parabolas(
    symbol: Symbol[TableLookup], data: Tensor, form: _OnParabolas, words: Tensor, numbers: Tensor
) -> View:
    """The same by parabolas, in words wherever the data is."""
    narrow = _narrow(symbol)
    finer, apart = (constant(count, PLACE) for count in (form.finer, WORD - SEGMENT_BITS - form.step))

    def number(index: int, dtype: str) -> Expression:
        return numbers(constant(index, "int32")).astype(dtype)

    def element(*at: Expression) -> Expression:
        x = broadcast(data, at, symbol.shape).astype(narrow)
        held = te.min(te.max(x, number(0, narrow)), number(1, narrow))
        place = unsimplified(held).astype(PLACE) - number(2, PLACE)
        found = on_parabola(words, place << apart) >> finer
        if symbol.dtype not in WORDS:
            return found.astype(symbol.dtype) + number(3, symbol.dtype)
        return tirx.reinterpret("int16", found + number(3, PLACE)).astype(symbol.dtype)

    return inlined(symbol.shape, symbol.dtype, element)
