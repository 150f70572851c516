"""The high half of a product of int16s: an operator of TVM that vectors go through whole, by one instruction."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.op import register_intrin_lowering

from mrt.backend.machine import Machine
from mrt.backend.tir.expressions import PURE, Expression, constant, dtype_of, llvm_call

OPERATOR = "tirx.mrt_multiply_high"
INT16_BITS = 16
UINT16_MAX = 2**INT16_BITS - 1
LANES = 32
"""int16s of a vector."""
INSTRUCTIONS = {
    f"int16x{LANES}": "llvm.x86.avx512.pmulh.w.512",
    f"uint16x{LANES}": "llvm.x86.avx512.pmulhu.w.512",
}
"""For what LLVM, which takes vectors of 1024 bits apart first, does not find by itself."""


def has_int16_vectors(machine: Machine) -> bool:
    """Whether a machine multiplies LANES int16s at once."""
    return machine.has("avx512bw")


def multiply_high(x: Expression, y: Expression, whole: bool) -> Expression:
    """floor(x · y / 2^16) of two int16 or two uint16, in their dtype. whole: see `has_int16_vectors`."""
    return tirx.call_intrin(dtype_of(x), OPERATOR, x, y) if whole else _by_arithmetic(x, y)


def _by_arithmetic(x: Expression, y: Expression) -> Expression:
    dtype = dtype_of(x)
    wide = dtype.replace("int16", "int32")
    return ((x.astype(wide) * y.astype(wide)) >> constant(INT16_BITS, wide.partition("x")[0])).astype(dtype)


def _lowered(call: Any) -> Expression:
    instruction = INSTRUCTIONS.get(dtype_of(call))
    if instruction is None:
        return _by_arithmetic(*call.args)
    return llvm_call(dtype_of(call), instruction, *call.args)


ir.register_op_attr(OPERATOR, "TVectorizable", True)
ir.register_op_attr(OPERATOR, "TCallEffectKind", PURE)
register_intrin_lowering(OPERATOR, target="llvm", f=_lowered)
