"""Look-up tables."""

from __future__ import annotations

from mrt.backend.compute import Kind, Tensor, broadcast, compute, constant, record, stage
from mrt.symbol import Symbol
from mrt.symbol.operators.table import TableLookup


@compute("table_lookup", kind=Kind.ELEMENTWISE)
def table_lookup(symbol: Symbol, data: Tensor, table: Tensor) -> Tensor:
    """table[data + offset]; the data is proven to lie within, so that nothing is checked."""
    offset = constant(record(symbol, TableLookup).offset, "int32")
    return stage(
        symbol.shape, lambda *at: table(broadcast(data, at).astype("int32") + offset), "table_lookup", inline=True
    )
