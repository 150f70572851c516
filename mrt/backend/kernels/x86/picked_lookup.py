"""Look-up of entries one by one: an operator of TVM that vectors of places go through whole.

For CPUs that gather slowly, as those of AMD and all without AVX-512. What costs is to take places out of a vector and
to put entries into one. Here four places of 16 bits leave at once, as one integer that is shifted, and entries are put
in by the instruction that loads them: 0.16 ns for each of 16 bits on Zen 5, where gathers take 0.30 and places that
leave one by one 0.23.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from mrt.backend.kernels.x86.lookup_operator import look_up, looked_up_in, register_lookup
from mrt.backend.machine import GATHERS, Machine
from mrt.backend.schedule.cost import PICKS
from mrt.backend.tir.expressions import Expression, Tensor, bind, constant, dtype_of, llvm_call, of_lanes, shuffled

OPERATOR = "tirx.mrt_picked"
PLACE, BITS = "uint16", 16
"""The dtype of places, and its bits."""
AT_ONCE = 4
"""Places that leave a vector together."""
LEAST = 16
"""Lanes from which on loops are made vectors for the sake of a look-up."""
FENCE = "llvm.arithmetic.fence"
"""What LLVM does not look through: else it takes places out of vectors one by one again. It knows floats only."""


def picks(machine: Machine) -> bool:
    """Whether a machine reads the entries of tables fastest one by one."""
    return machine.has("avx2") and not machine.has("avx512f", GATHERS)


def picked(table: Tensor, place: Expression) -> Expression:
    """table[place], whose place is of the dtype PLACE."""
    return look_up(OPERATOR, table, place)


def _lowered(call: Any) -> Expression:
    _, memory, places = looked_up_in(call)
    lanes = int(places.ty.dtype.lanes)
    if lanes % AT_ONCE:
        return tirx.BufferLoad(memory, [places.astype(dtype_of(places).replace(PLACE, "int32"))])

    def entry(four: Expression, number: int) -> Expression:
        place = (four >> constant(number * BITS, "uint64")).astype(PLACE)
        return tirx.BufferLoad(memory, [place.astype("int32")])

    def entries(held: Expression) -> Expression:
        fours = tirx.reinterpret(of_lanes("float64", lanes // AT_ONCE), held)
        found = [
            bind(_alone(fours, first), lambda four: shuffled([entry(four, each) for each in range(AT_ONCE)], range(4)))
            for first in range(lanes // AT_ONCE)
        ]
        return shuffled(found, range(lanes))

    return bind(places, entries)


def _alone(fours: Expression, first: int) -> Expression:
    """Four places as an integer of 64 bits that is in no vector."""
    four = shuffled([fours], [first])
    return tirx.reinterpret("uint64", llvm_call("float64", FENCE, four))


register_lookup(OPERATOR, LEAST, _lowered)
ir.register_op_attr(OPERATOR, PICKS, True)
