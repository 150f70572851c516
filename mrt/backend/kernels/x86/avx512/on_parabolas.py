"""Places of 16 bits on parabolas (see `mrt/symbol/parabolas.py`): an operator of TVM that vectors of places go through
whole.

vpermi2w picks of 64 words by the lower 6 bits of each of 32 places, so that registers hold the bases, rises and bends
of 64 segments. vpmulhrsw is what a number has risen: (a b + 2^14) >> 15.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir, tirx

from mrt.backend.kernels.x86.lookup_operator import by_parts, look_up, looked_up_in, register_lookup
from mrt.backend.machine import Machine
from mrt.backend.schedule.cost import AT_ONCE
from mrt.backend.tir.expressions import (
    Expression,
    Tensor,
    bind,
    bind_each,
    constant,
    dtype_of,
    llvm_call,
    of_lanes,
    shuffled,
)
from mrt.symbol import Array
from mrt.symbol.parabolas import SEGMENT_BITS, SEGMENTS, WORD, Parabolas

OPERATOR = "tirx.mrt_on_parabolas"
PLACE, WORDS = "uint16", "int16"
"""The dtype of places, and that of bases, rises and bends in memory."""
LANES, PARTS, LEAST = 32, (4, 8, 16), 4
"""Places that are found at once; numbers of them for which a part of a vector pays; lanes from which on loops are made
vectors for their sake."""
VPERMI2W = "llvm.x86.avx512.vpermi2var.hi.512"
VPMULHRSW = "llvm.x86.avx512.pmul.hr.sw.512"


def draws_parabolas(machine: Machine) -> bool:
    """Whether registers of a machine hold the parabolas of a table."""
    return machine.has("avx512bw")


def words_of(parabolas: Parabolas) -> Array:
    """The bits of bases, rises and bends: int16 [3 · SEGMENTS]."""
    numbers = parabolas.bases.view(np.int16), parabolas.rises, parabolas.bends
    return np.concatenate([np.pad(each, (0, SEGMENTS - len(each))) for each in numbers])


def on_parabola(words: Tensor, place: Expression) -> Expression:
    """The base and what the parabola has risen to a place of the dtype PLACE, in that; all segments together have 2^16
    places."""
    return tirx.reinterpret(PLACE, look_up(OPERATOR, words, place))


def _lowered(call: Any) -> Expression:
    _, memory, places = looked_up_in(call)
    lanes = int(places.ty.dtype.lanes)

    def whole(held: Expression) -> Expression:
        vector = shuffled([held] * (LANES // lanes), range(LANES))
        return shuffled([bind(vector, lambda each: _on_parabolas(memory, each))], range(lanes))

    if lanes in PARTS:
        return bind(places, whole)
    if lanes % LANES:
        return bind(places, lambda held: _one_by_one(memory, held))
    return by_parts(places, lanes, LANES, lambda held: _on_parabolas(memory, held))


def _on_parabolas(memory: Any, places: Expression) -> Expression:
    def found(segment: Expression, within: Expression) -> Expression:
        base, rise, bend = (_picked(memory, segment, number * SEGMENTS) for number in range(3))

        def times(number: Expression) -> Expression:
            return llvm_call(f"{WORDS}x{LANES}", VPMULHRSW, number, _as(WORDS, within))

        return _sum(base, times(_sum(rise, times(bend))))

    return bind_each(_apart(places), found)


def _apart(places: Expression) -> tuple[Expression, Expression]:
    """The segments of places, and of the 2^15 places of a segment the one."""
    segment, left, right = (_alike(by, places) for by in (WORD - SEGMENT_BITS, SEGMENT_BITS, 1))
    return places >> segment, (places << left) >> right


def _picked(memory: Any, places: Expression, first: int) -> Expression:
    """The words at places of SEGMENTS words that begin at `first`."""
    low, high = (tirx.BufferLoad(memory, [tirx.Ramp(constant(at, "int32"), 1, LANES)]) for at in (first, first + LANES))
    return llvm_call(f"{WORDS}x{LANES}", VPERMI2W, low, places, high)


def _one_by_one(memory: Any, places: Expression) -> Expression:
    """The same by loads, of what is risen in int32."""
    segment, within = (each.astype(_dtype("int32", places)) for each in _apart(places))
    base, rise, bend = (tirx.BufferLoad(memory, [segment + _alike(number * SEGMENTS, segment)]) for number in range(3))

    def times(number: Expression) -> Expression:
        product = number.astype(_dtype("int32", number)) * within
        return ((product + _alike(1 << 14, product)) >> _alike(15, product)).astype(_dtype(WORDS, places))

    return _sum(base, times(_sum(rise, times(bend))))


def _sum(first: Expression, second: Expression) -> Expression:
    """Of words, modulo 2^16."""
    return _as(WORDS, _as(PLACE, first) + _as(PLACE, second))


def _alike(number: int, value: Expression) -> Expression:
    """A constant in all lanes of a value."""
    lanes, scalar = int(value.ty.dtype.lanes), constant(number, dtype_of(value).partition("x")[0])
    return tirx.Broadcast(scalar, lanes) if lanes > 1 else scalar


def _dtype(scalar: str, value: Expression) -> str:
    """A dtype of as many lanes as a value has."""
    return of_lanes(scalar, int(value.ty.dtype.lanes))


def _as(scalar: str, value: Expression) -> Expression:
    """The bits of a value as another dtype of 16 bits."""
    return tirx.reinterpret(_dtype(scalar, value), value)


register_lookup(OPERATOR, LEAST, _lowered)
ir.register_op_attr(OPERATOR, AT_ONCE, LANES)
