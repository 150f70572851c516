"""The upper word of a product of two words: an operator of TVM that vectors go through whole, by two instructions.

`pmuludq` multiplies every second word of two vectors to words of twice the length. Written as products of such, of
words that are widened, LLVM would multiply all 64 bits where one factor is made before a loop.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.op import register_intrin_lowering

from mrt.backend.tir.expressions import PURE, Expression, bind, of_lanes, shuffled

OPERATOR = "tirx.mrt_high_word"
BITS = 32


def high_word(a: Expression, b: Expression) -> Expression:
    """floor(a · b / 2^32) of two uint32."""
    return tirx.call_intrin("uint32", OPERATOR, a, b)


def _lowered(call: Any) -> Expression:
    a, b = call.args
    lanes = int(call.ty.dtype.lanes)
    return bind(a, lambda x: bind(b, lambda y: (_by_halves if lanes % 2 == 0 else _widened)(x, y, lanes)))


def _by_halves(a: Expression, b: Expression, lanes: int) -> Expression:
    """Even and odd words by themselves."""
    pairs, odd = lanes // 2, [place | 1 for place in range(lanes)]
    low, shift = _word(2**BITS - 1, pairs), _word(BITS, pairs)

    def factor(words: Expression) -> Expression:
        # The mask tells LLVM that the upper half is 0, wherever the factor was made.
        return tirx.reinterpret(of_lanes("uint64", pairs), words) & low

    upper = (factor(shuffled([a], odd)) * factor(shuffled([b], odd))) & _word(2**64 - 2**BITS, pairs)
    return tirx.reinterpret(f"uint32x{lanes}", (factor(a) * factor(b)) >> shift | upper)


def _widened(a: Expression, b: Expression, lanes: int) -> Expression:
    wide, word = (of_lanes(dtype, lanes) for dtype in ("uint64", "uint32"))
    return ((a.astype(wide) * b.astype(wide)) >> _word(BITS, lanes)).astype(word)


def _word(value: int, lanes: int) -> Expression:
    number = tirx.const(value, "uint64")
    return tirx.Broadcast(number, lanes) if lanes > 1 else number


ir.register_op_attr(OPERATOR, "TVectorizable", True)
ir.register_op_attr(OPERATOR, "TCallEffectKind", PURE)
register_intrin_lowering(OPERATOR, target="llvm", f=_lowered)
