"""Operators of TVM that look up entries of a table: vectors of places go through them whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir, tirx
from tvm.tirx.op import register_intrin_lowering

from mrt.backend.schedule.elementwise import WHOLE_VECTORS
from mrt.backend.tir.expressions import Expression, Tensor, bind, constant, shuffled

READS_STATE = 2
"""tvm::tirx::CallEffectKind::kReadState."""


def register_lookup(operator: str, least: int, lowered: Callable[[Any], Expression]) -> None:
    """Makes an operator known, whose arguments are where the table begins, and places.

    least: lanes from which on loops are made vectors for its sake. lowered: what TVM puts in the place of a call.
    """
    ir.register_op_attr(operator, "TVectorizable", True)
    ir.register_op_attr(operator, "TCallEffectKind", READS_STATE)
    ir.register_op_attr(operator, WHOLE_VECTORS, least)
    register_intrin_lowering(operator, target="llvm", f=lowered)


def look_up(operator: str, table: Tensor, place: Expression) -> Expression:
    """table[place], table being a TE tensor; what TVM would take apart for a vector of places stays whole."""
    start = tirx.call_intrin("handle", "tirx.address_of", table(constant(0, "int32")))
    return tirx.call_intrin(table.dtype, operator, start, place)


def looked_up_in(call: Any) -> tuple[Expression, Any, Expression]:
    """Of a call: where its table begins, the table's memory, and the places."""
    start, places = call.args
    start = start.value if isinstance(start, tirx.Broadcast) else start
    (load,) = start.args
    return start, load.source, places


def by_parts(places: Expression, lanes: int, most: int, found: Callable[[Expression], Expression]) -> Expression:
    """The entries at a vector of `lanes` places, of which `found` gives those of `most`, which divide them.

    Loops over narrower integers have more lanes: read one by one, their elements are what LLVM optimizes longest.
    """

    def entries(held: Expression) -> Expression:
        if lanes == most:
            return found(held)
        parts = [shuffled([held], range(first, first + most)) for first in range(0, lanes, most)]
        return shuffled([bind(part, found) for part in parts], range(lanes))

    return bind(places, entries)
