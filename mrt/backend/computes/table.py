"""Look-up tables."""

from __future__ import annotations

from mrt.backend.compute import Kind, compute, record
from mrt.backend.expressions import Expression, Tensor, constant
from mrt.backend.stages import broadcast, inlined
from mrt.symbol import Symbol
from mrt.symbol.operators.table import TableLookup


@compute("table_lookup", kind=Kind.ELEMENTWISE, whole=(1,))
def table_lookup(symbol: Symbol, data: Tensor, table: Tensor) -> Tensor:
    """table[data + offset]; the data is proven to lie within, so that nothing is checked."""
    offset = constant(record(symbol, TableLookup).offset, "int32")

    def element(*at: Expression) -> Expression:
        return table(broadcast(data, at, symbol.shape).astype("int32") + offset)

    return inlined(symbol.shape, symbol.dtype, element)
