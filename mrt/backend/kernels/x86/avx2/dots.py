"""The dots of AVX2 and SSE2. pmaddubsw, of bytes, saturates: it serves where no pair of products can.

SSE2's is not crossed: its additions overwrite a factor, which others need.
"""

from __future__ import annotations

from mrt.backend.kernels.dot_instruction import ByteDot, Int16Dot

PMADDWD_256 = "llvm.x86.avx2.pmadd.wd"

DOTS = (
    ByteDot.of("llvm.x86.avx2.pmadd.ub.sw", ("avx2",), 256, "uint8", PMADDWD_256),
    Int16Dot.of(PMADDWD_256, ("avx2",), 256, adds=False, crosses=True),
    Int16Dot.of("llvm.x86.sse2.pmadd.wd", ("sse2",), 128, adds=False),
)
