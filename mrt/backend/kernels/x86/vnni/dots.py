"""The dots of AVX512-VNNI and AVX-VNNI."""

from __future__ import annotations

from mrt.backend.kernels.dot_instruction import ByteDot, Int16Dot

AVX512_VNNI, AVX_VNNI = ("avx512vnni", "avx512bw"), ("avxvnni", "avx2")
"""Vectors of bytes in 512 bits need avx512bw, without which LLVM cannot make code of them."""
PERMUTES = "avx512vbmi"
"""The feature of one instruction that puts the bytes of a vector in any order; depthwise convolutions use it."""

VPDPBUSD_512 = ByteDot.of("llvm.x86.avx512.vpdpbusd.512", AVX512_VNNI, 512, "uint8")
VPDPWSSD_512 = Int16Dot.of("llvm.x86.avx512.vpdpwssd.512", AVX512_VNNI, 512, adds=True)
VPDPBUSD_256 = ByteDot.of("llvm.x86.avx512.vpdpbusd.256", AVX_VNNI, 256, "uint8")
VPDPWSSD_256 = Int16Dot.of("llvm.x86.avx512.vpdpwssd.256", AVX_VNNI, 256, adds=True)

DOTS = (VPDPBUSD_512, VPDPWSSD_512, VPDPBUSD_256, VPDPWSSD_256)
