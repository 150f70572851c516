"""The dot of AVX512-BW."""

from __future__ import annotations

from mrt.backend.kernels.dot_instruction import Int16Dot

DOTS = (Int16Dot.of("llvm.x86.avx512.pmaddw.d.512", ("avx512bw",), 512, adds=False),)
