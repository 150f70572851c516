"""The upper word of a product of words: an operator of TVM that vectors go through whole, by one instruction."""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx
from tvm.tirx.op import register_intrin_lowering

from mrt.backend.machine import Machine
from mrt.backend.tir.expressions import Expression, constant, dtype_of

OPERATOR = "tirx.mrt_upper_word"
WORD = 16
"""Bits of a word."""
MOST_WORD = 2**WORD - 1
"""The largest word without a sign."""
LANES = 32
"""Words of a vector."""
INSTRUCTIONS = {
    f"int16x{LANES}": "llvm.x86.avx512.pmulh.w.512",
    f"uint16x{LANES}": "llvm.x86.avx512.pmulhu.w.512",
}
"""For what LLVM, which takes vectors of 1024 bits apart first, does not find by itself."""
PURE = 1
"""tvm::tirx::CallEffectKind::kPure."""


def has_whole(machine: Machine) -> bool:
    """Whether a machine multiplies LANES words at once."""
    return machine.has("avx512bw")


def upper_word(x: Expression, y: Expression, whole: bool) -> Expression:
    """floor(x · y / 2^16) of two int16 or two uint16, in their dtype. whole: see `has_whole`."""
    return tirx.call_intrin(dtype_of(x), OPERATOR, x, y) if whole else _spelt(x, y)


def _spelt(x: Expression, y: Expression) -> Expression:
    dtype = dtype_of(x)
    wide = dtype.replace("int16", "int32")
    return ((x.astype(wide) * y.astype(wide)) >> constant(WORD, wide.partition("x")[0])).astype(dtype)


def _lowered(call: Any) -> Expression:
    instruction = INSTRUCTIONS.get(dtype_of(call))
    if instruction is None:
        return _spelt(*call.args)
    return tirx.call_llvm_pure_intrin(dtype_of(call), instruction, *call.args)


ir.register_op_attr(OPERATOR, "TVectorizable", True)
ir.register_op_attr(OPERATOR, "TCallEffectKind", PURE)
register_intrin_lowering(OPERATOR, target="llvm", f=_lowered)
