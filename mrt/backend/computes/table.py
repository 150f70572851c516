"""Look-up tables."""

from __future__ import annotations

import numpy as np
from tvm import te, tirx

from mrt.backend.kernels.x86.avx512.lookup import gathers, looked_up
from mrt.backend.kernels.x86.byte_lookup import ByteLookup, byte_lookup, table_of_bytes
from mrt.backend.memory.storage import View
from mrt.backend.te.operands import Operand, Packed, Surroundings
from mrt.backend.te.registry import Kind, compute
from mrt.backend.te.stages import broadcast, inlined
from mrt.backend.tir.expressions import Expression, Tensor, combined, constant
from mrt.symbol import Array, Symbol
from mrt.symbol.operators.table import TableLookup

BYTES = ("int8", "uint8")
GATHERED = "gathered"
"""The form of an int32 table that is read by gather instructions."""


def pack_table(symbol: Symbol[TableLookup], table: Array, surroundings: Surroundings) -> Packed | None:
    dtype, machine = symbol.inputs[0].dtype, surroundings.machine
    if dtype in BYTES and table.dtype in BYTES and (form := byte_lookup(machine)) is not None:
        return Packed.as_is(table_of_bytes(table, symbol.operator.offset, dtype), form)
    if not gathers(machine) or table.dtype.kind == "f":
        return None
    return Packed.as_is(table.astype(np.int32), GATHERED)


@compute(TableLookup, kind=Kind.ELEMENTWISE, random_access=(1,), packings={1: pack_table})
def table_lookup(symbol: Symbol[TableLookup], data: Tensor, table: View | Operand) -> View:
    """table[data + offset]. The data is proven to lie in the table; its padding in memory is clamped to it."""
    if isinstance(table, Operand) and isinstance(table.form, ByteLookup):
        return _bytes(symbol, data, table.form, table.views[0].tensor)
    last = constant(symbol.inputs[1].shape[0] - 1, "int32")
    offset = constant(symbol.operator.offset, "int32")

    def element(*at: Expression) -> Expression:
        place = combined(lambda x: x.astype("int32") + offset, [broadcast(data, at, symbol.shape)])
        place = te.max(te.min(place, last), constant(0, "int32"))
        if isinstance(table, Operand):
            return looked_up(table.views[0].tensor, place).astype(symbol.dtype)
        return table(place)

    return inlined(symbol.shape, symbol.dtype, element)


def _bytes(symbol: Symbol[TableLookup], data: Tensor, look_up: ByteLookup, table: Tensor) -> View:
    """The same by the byte that holds the data: the table has entries for all of them."""

    def element(*at: Expression) -> Expression:
        place = tirx.reinterpret("uint8", broadcast(data, at, symbol.shape))
        return tirx.reinterpret(symbol.dtype, look_up(table, place))

    return inlined(symbol.shape, symbol.dtype, element)
