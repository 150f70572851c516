"""The dots of AVX2 and SSE2. pmaddubsw, of bytes, is not among them: it saturates."""

from __future__ import annotations

from mrt.backend.kernels.dot_instruction import Int16Dot

DOTS = (
    Int16Dot.of("llvm.x86.avx2.pmadd.wd", ("avx2",), 256, adds=False),
    Int16Dot.of("llvm.x86.sse2.pmadd.wd", ("sse2",), 128, adds=False),
)
