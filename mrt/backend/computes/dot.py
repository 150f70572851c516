"""dot: batch_dot without leading axes."""

from __future__ import annotations

from mrt.backend.computes.linear import add_products, batch_dot, form_matrix, request_matrix, request_rows
from mrt.backend.layout.packing import Operand, forming
from mrt.backend.memory.storage import View
from mrt.backend.te.registry import Kind, compute, on_scalars, requesting_layout
from mrt.symbol import Symbol

requesting_layout("dot")(request_rows)
requesting_layout("dot", 1)(request_matrix)
forming("dot", 1)(form_matrix)
on_scalars("dot")(add_products)


@compute("dot", kind=Kind.ROWS)
def dot(symbol: Symbol, lhs: View, rhs: Operand) -> View:
    return batch_dot(symbol, lhs, rhs)
