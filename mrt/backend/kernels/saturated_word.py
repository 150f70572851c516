"""Integers of 32 bits held to words: an operator of TVM that vectors go through whole, by one instruction for two."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tvm import ir, tirx
from tvm.tirx.op import register_intrin_lowering

from mrt.backend.expressions import Expression, constant, dtype_of
from mrt.backend.kernels.upper_word import LANES, PURE

OPERATOR = "tirx.mrt_saturated_word"
INSTRUCTION = "llvm.x86.avx512.packusdw.512"
MOST = 2**16 - 1
TURN = 4
"""Elements of each of its two vectors that the instruction puts next to those of the other one."""


def saturated_word(x: Expression, whole: bool) -> Expression:
    """min(max(x, 0), 2^16 - 1) of an int32, in uint16. whole: see `upper_word.has_whole`."""
    return tirx.call_intrin("uint16", OPERATOR, x) if whole else _spelt(x)


def _spelt(x: Expression) -> Expression:
    kind, _, lanes = dtype_of(x).partition("x")
    least, most = constant(0, kind), constant(MOST, kind)
    if lanes:
        least, most = (tirx.Broadcast(limit, int(lanes)) for limit in (least, most))
    return tirx.min(tirx.max(x, least), most).astype(dtype_of(x).replace("int32", "uint16"))


def _lowered(call: Any) -> Expression:
    (x,) = call.args
    if dtype_of(call) != f"uint16x{LANES}":
        return _spelt(x)
    halves = (_picked(x, range(first, first + LANES // 2)) for first in (0, LANES // 2))
    packed = tirx.call_llvm_pure_intrin(dtype_of(call), INSTRUCTION, *halves)
    # It gives elements of both vectors in turns.
    turns = [first for half in (0, TURN) for first in range(half, LANES, 2 * TURN)]
    return _picked(packed, [first + i for first in turns for i in range(TURN)])


def _picked(vector: Expression, places: Iterable[int]) -> Expression:
    """The elements of a vector at some places."""
    return tirx.Shuffle([vector], [constant(place, "int32") for place in places])


ir.register_op_attr(OPERATOR, "TVectorizable", True)
ir.register_op_attr(OPERATOR, "TCallEffectKind", PURE)
register_intrin_lowering(OPERATOR, target="llvm", f=_lowered)
