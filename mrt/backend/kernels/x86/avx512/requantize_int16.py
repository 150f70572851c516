"""int32 requantized to int16 and clipped: an operator of TVM that vectors go through whole, two at a time.

The result is made of the upper half of x · f. Where 16 bits of x hold what counts, x is clipped to them before, by the
instruction that makes one vector of two. Else the product's upper half is lower · f / 2^16 + upper · f, of the halves
of x, in 32 bits, and is clipped by the same instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import ir, tirx
from tvm.tirx.op import register_intrin_lowering

from mrt.backend.kernels.x86.avx512.multiply_high import (
    INSTRUCTIONS,
    INT16_BITS,
    LANES,
    UINT16_MAX,
    multiply_high,
)
from mrt.backend.kernels.x86.vnni.dots import AVX512_VNNI, VPDPWSSD_512
from mrt.backend.machine import Machine
from mrt.backend.tir.expressions import PURE, Expression, bind_each, constant, dtype_of, llvm_call, shuffled

OPERATOR, PRODUCT = "tirx.mrt_requantize_int16", "tirx.mrt_multiply_high_int16"
PACK, PACK_SIGNED = "llvm.x86.avx512.packusdw.512", "llvm.x86.avx512.packssdw.512"
ADD_PRODUCTS = VPDPWSSD_512.llvm
TURN = 4
"""Elements of each of its two vectors that PACK puts next to those of the other one."""
TURNS = tuple(first + i for half in (0, TURN) for first in range(half, LANES, 2 * TURN) for i in range(TURN))
"""Where in what PACK gives the elements of the first vector are, and then those of the second."""

HALVES = tuple(range(first, first + LANES // 2) for first in (0, LANES // 2))
"""Where in a vector of int16s those are that are made of one of int32s."""


def clips_products(machine: Machine) -> bool:
    """Whether a machine can clip after it multiplies: by an instruction that adds two products to 32 bits at once."""
    return machine.has(*AVX512_VNNI)


def requantize_int16(
    x: Expression, factors: Sequence[Expression], half: Expression, left: Expression, whole: bool
) -> Expression:
    """(min(max(w, 0), 2^16 - 1) + half) >> left in uint16, of w = x · f / 2^16 rounded down.

    x: an int32. factors: one f of uint16, where x is clipped instead of w, or f and 2^16 f as int32. half, left:
    uint16. The sum fits 16 bits. whole: see `multiply_high.has_int16_vectors`.
    """
    if whole:
        return tirx.call_intrin("uint16", OPERATOR, x, half, left, *factors)
    return _by_arithmetic(x, half, left, *factors)


def multiply_high_int16(x: Expression, factors: Sequence[Expression], whole: bool) -> Expression:
    """x · f / 2^16 rounded down, in int16, which holds it, of an int32 x. factors: f and 2^16 f as int32."""
    return tirx.call_intrin("int16", PRODUCT, x, *factors) if whole else _high_half(x, *factors).astype("int16")


def requantize_pair(
    vectors: Sequence[Expression],
    half: Expression,
    left: Expression,
    factors: Sequence[Sequence[Expression]],
    interleaved: bool,
) -> Expression:
    """The int16s of two vectors of int32, LANES of them, one vector's after the other's or as PACK puts them.

    factors: those of each vector. half, left, and a factor of uint16, which serves both: LANES, in the order of the
    result.
    """
    late = len(factors[0]) > 1
    given = [_high_halves(x, *own) for x, own in zip(vectors, factors, strict=True)] if late else vectors
    packed = llvm_call(f"uint16x{LANES}", PACK, *given)
    packed = packed if interleaved else shuffled([packed], TURNS)
    if not late:
        packed = llvm_call(dtype_of(packed), INSTRUCTIONS[dtype_of(packed)], packed, factors[0][0])
    return (packed + half) >> left


def multiply_high_pair(vectors: Sequence[Expression], factors: Sequence[Sequence[Expression]]) -> Expression:
    """x · f / 2^16 of two vectors of int32, int16s as PACK_SIGNED puts them. factors: those of each vector."""
    upper = [_high_halves(x, *own) for x, own in zip(vectors, factors, strict=True)]
    return llvm_call(f"int16x{LANES}", PACK_SIGNED, *upper)


def _high_halves(x: Expression, lower: Expression, upper: Expression) -> Expression:
    """x · f / 2^16 in vectors of 16 int32, of the vectors f and 2^16 f, whose halves are f, 0 and 0, f."""
    int16s = f"int16x{LANES}"
    of_lower = llvm_call(
        f"u{int16s}", INSTRUCTIONS[f"u{int16s}"], *(tirx.reinterpret(f"u{int16s}", each) for each in (x, lower))
    )
    added = [tirx.reinterpret(int16s, each) for each in (x, upper)]
    return llvm_call(dtype_of(x), ADD_PRODUCTS, tirx.reinterpret(dtype_of(x), of_lower), *added)


def _by_arithmetic(x: Expression, half: Expression, left: Expression, *factors: Expression) -> Expression:
    if len(factors) == 1:
        return (multiply_high(clipped_to_uint16(x), factors[0], False) + half) >> left
    narrow = dtype_of(x).replace("int32", "uint16")
    clipped = _clipped(_high_half(x, *factors))
    return ((clipped + half.astype(dtype_of(x))) >> left.astype(dtype_of(x))).astype(narrow)


def clipped_to_uint16(x: Expression) -> Expression:
    """int32 clipped to 16 bits without a sign."""
    return _clipped(x).astype(dtype_of(x).replace("int32", "uint16"))


def _clipped(x: Expression) -> Expression:
    kind, _, lanes = dtype_of(x).partition("x")
    least, most = (constant(value, kind) for value in (0, UINT16_MAX))
    if lanes:
        least, most = (tirx.Broadcast(value, int(lanes)) for value in (least, most))
    return tirx.min(tirx.max(x, least), most)


def _high_half(x: Expression, lower: Expression, upper: Expression) -> Expression:
    """x · f / 2^16 rounded down in int32, of f and 2^16 f."""
    if dtype_of(x) == f"int32x{LANES // 2}":
        return _high_halves(x, lower, upper)
    kind, _, lanes = dtype_of(x).partition("x")
    most, bits = (constant(number, kind) for number in (UINT16_MAX, INT16_BITS))
    if lanes:
        most, bits = (tirx.Broadcast(number, int(lanes)) for number in (most, bits))
    return (((x & most) * lower) >> bits) + (x >> bits) * lower


def _lowered_product(call: Any) -> Expression:
    if dtype_of(call) != f"int16x{LANES}":
        x, *factors = call.args
        return _high_half(x, *factors).astype(dtype_of(call))

    def halves(x: Expression, *factors: Expression) -> Expression:
        return shuffled([multiply_high_pair(_halves(x), _halves_of_each(factors))], TURNS)

    return bind_each(call.args, halves)


def _lowered(call: Any) -> Expression:
    if dtype_of(call) != f"uint16x{LANES}":
        return _by_arithmetic(*call.args)

    def pair(x: Expression, half: Expression, left: Expression, *factors: Expression) -> Expression:
        own = [factors] * 2 if len(factors) == 1 else _halves_of_each(factors)
        return requantize_pair(_halves(x), half, left, own, interleaved=False)

    return bind_each(call.args, pair)


def _halves(vector: Expression) -> list[Expression]:
    return [shuffled([vector], places) for places in HALVES]


def _halves_of_each(vectors: Sequence[Expression]) -> list[list[Expression]]:
    """The lower halves of vectors, and the upper ones."""
    return [[shuffled([each], places) for each in vectors] for places in HALVES]


for name, lower in ((OPERATOR, _lowered), (PRODUCT, _lowered_product)):
    ir.register_op_attr(name, "TVectorizable", True)
    ir.register_op_attr(name, "TCallEffectKind", PURE)
    register_intrin_lowering(name, target="llvm", f=lower)
