"""The dots of AVX512-BW: those of AVX2 in 512 bits."""

from __future__ import annotations

from mrt.backend.kernels.dot_instruction import ByteDot, Int16Dot

FEATURES, PMADDWD_512 = ("avx512bw",), "llvm.x86.avx512.pmaddw.d.512"

DOTS = (
    ByteDot.of("llvm.x86.avx512.pmaddubs.w.512", FEATURES, 512, "uint8", PMADDWD_512),
    Int16Dot.of(PMADDWD_512, FEATURES, 512, adds=False),
)
