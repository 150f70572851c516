"""Look-up in tables: an operator of TVM that vectors of indices go through whole, by one instruction."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from mrt.backend.kernels.x86.lookup_operator import by_parts, look_up, looked_up_in, register_lookup
from mrt.backend.machine import Machine
from mrt.backend.schedule.cost import PICKS
from mrt.backend.tir.expressions import Expression, Tensor, constant, llvm_call

OPERATOR = "tirx.mrt_lookup"
LANES = 16
GATHER = "llvm.x86.avx512.mask.gather.dpi.512"


def gathers(machine: Machine) -> bool:
    """Whether a machine reads the int32 elements of a table at the places that a vector holds by one instruction."""
    return machine.has("avx512f")


def looked_up(table: Tensor, place: Expression) -> Expression:
    """table[place], table being a TE tensor of int32."""
    return look_up(OPERATOR, table, place)


def _lowered(call: Any) -> Expression:
    start, memory, places = looked_up_in(call)
    lanes = int(places.ty.dtype.lanes)
    if lanes % LANES:
        return tirx.BufferLoad(memory, [places])
    return by_parts(places, lanes, LANES, lambda held: _gathered(start, held))


def _gathered(start: Expression, places: Expression) -> Expression:
    none, all_lanes = (tirx.Broadcast(value, LANES) for value in (constant(0, "int32"), constant(True, "bool")))
    return llvm_call(f"int32x{LANES}", GATHER, none, start, places, all_lanes, constant(4, "int32"))


register_lookup(OPERATOR, LANES, _lowered)
ir.register_op_attr(OPERATOR, PICKS, True)
