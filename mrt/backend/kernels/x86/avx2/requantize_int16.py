"""int32 requantized to int16 where no instruction shifts int16s of a vector by numbers of their own: with AVX2.

x is clipped to 16 bits by the instruction that makes one vector of two. And a shift to the right by n, 1 to 15, is the
upper half of a product by 2^(16 - n).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir, tirx
from tvm.tirx.op import register_intrin_lowering

from mrt.backend.kernels.x86.avx512.multiply_high import INT16_BITS, has_int16_vectors, multiply_high
from mrt.backend.kernels.x86.avx512.requantize_int16 import clipped_to_uint16
from mrt.backend.machine import Machine
from mrt.backend.tir.expressions import PURE, Expression, bind, dtype_of, llvm_call, shuffled
from mrt.symbol import Array

OPERATOR = "tirx.mrt_requantize_int16_by_products"
INSTRUCTIONS = {
    "uint16x8": ("llvm.x86.sse41.packusdw", "llvm.x86.sse2.pmulhu.w"),
    "uint16x16": ("llvm.x86.avx2.packusdw", "llvm.x86.avx2.pmulhu.w"),
}
"""What clips and packs two vectors of int32, and what gives the upper halves of products, for so many of these."""
TURN, PACKED = 4, 8
"""Elements of each of its two vectors that the first of these puts next to those of the other one, and how many make
128 bits, within which it works."""


def shifts_by_products(machine: Machine) -> bool:
    return machine.has("avx2") and not has_int16_vectors(machine)


def factors_of_shifts(shift: Array) -> Array:
    """2^(16 - n) of shifts n, 1 to 15, with the bits of uint16 in int16."""
    return np.left_shift(1, INT16_BITS - shift.astype(np.int32)).astype(np.uint16).view(np.int16)


def requantize_by_products(x: Expression, half: Expression, power: Expression, factor: Expression) -> Expression:
    """(w + half) · power / 2^16 in uint16, of w = min(max(x, 0), 2^16 - 1) · factor / 2^16, both rounded down.

    x: an int32. half, power, factor: uint16. The sum fits 16 bits.
    """
    return tirx.call_intrin("uint16", OPERATOR, x, half, power, factor)


def _lowered(call: Any) -> Expression:
    x, half, power, factor = call.args
    if dtype_of(call) not in INSTRUCTIONS:
        scaled = multiply_high(clipped_to_uint16(x), factor, False)
        return multiply_high(scaled + half, power, False)
    pack, multiply = INSTRUCTIONS[dtype_of(call)]

    def product(value: Expression, by: Expression) -> Expression:
        return llvm_call(dtype_of(call), multiply, value, by)

    return product(product(bind(x, lambda held: _packed(held, dtype_of(call), pack)), factor) + half, power)


def _packed(x: Expression, dtype: str, pack: str) -> Expression:
    """A vector of int32 clipped to uint16, of its halves."""
    lanes = int(dtype.partition("x")[2])
    halves = [shuffled([x], range(first, first + lanes // 2)) for first in (0, lanes // 2)]
    packed = llvm_call(dtype, pack, *halves)
    if lanes == PACKED:
        return packed
    turns = [first + i for half in (0, TURN) for first in (half, half + PACKED) for i in range(TURN)]
    return shuffled([packed], turns)


ir.register_op_attr(OPERATOR, "TVectorizable", True)
ir.register_op_attr(OPERATOR, "TCallEffectKind", PURE)
register_intrin_lowering(OPERATOR, target="llvm", f=_lowered)
