"""Look-up in tables: an operator of TVM that vectors of indices go through whole, by one instruction."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.op import register_intrin_lowering

from mrt.backend.kernels.x86.byte_lookup import READS_STATE
from mrt.backend.machine import Machine
from mrt.backend.schedule.cost import PICKS
from mrt.backend.schedule.elementwise import WHOLE_VECTORS
from mrt.backend.tir.expressions import Expression, Tensor, bind, constant, llvm_call, shuffled

OPERATOR = "tirx.mrt_lookup"
LANES = 16
GATHER = "llvm.x86.avx512.mask.gather.dpi.512"


def gathers(machine: Machine) -> bool:
    """Whether a machine reads the int32 elements of a table at the places that a vector holds by one instruction."""
    return machine.has("avx512f")


def looked_up(table: Tensor, place: Expression) -> Expression:
    """table[place], table being a TE tensor of int32; what TVM would take apart for a vector of places stays whole."""
    start = tirx.call_intrin("handle", "tirx.address_of", table(constant(0, "int32")))
    return tirx.call_intrin("int32", OPERATOR, start, place)


def _lowered(call: Any) -> Expression:
    start, places = call.args
    start = start.value if isinstance(start, tirx.Broadcast) else start
    lanes = int(places.ty.dtype.lanes)
    if lanes % LANES:
        (load,) = start.args
        return tirx.BufferLoad(load.source, [places])
    if lanes == LANES:
        return _gathered(start, places)
    # Loops over narrower integers have more lanes: read one by one, their elements are what LLVM optimizes longest.
    parts = [range(first, first + LANES) for first in range(0, lanes, LANES)]

    def gathered(held: Expression) -> Expression:
        return shuffled([_gathered(start, shuffled([held], part)) for part in parts], range(lanes))

    return bind(places, gathered)


def _gathered(start: Expression, places: Expression) -> Expression:
    none, all_lanes = (tirx.Broadcast(value, LANES) for value in (constant(0, "int32"), constant(True, "bool")))
    return llvm_call(f"int32x{LANES}", GATHER, none, start, places, all_lanes, constant(4, "int32"))


ir.register_op_attr(OPERATOR, "TVectorizable", True)
ir.register_op_attr(OPERATOR, "TCallEffectKind", READS_STATE)
ir.register_op_attr(OPERATOR, WHOLE_VECTORS, LANES)
ir.register_op_attr(OPERATOR, PICKS, True)
register_intrin_lowering(OPERATOR, target="llvm", f=_lowered)
