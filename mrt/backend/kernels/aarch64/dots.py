"""The dot of Armv8.2: signed bytes."""

from __future__ import annotations

from mrt.backend.kernels.dot_instruction import ByteDot

DOTS = (ByteDot.of("llvm.aarch64.neon.sdot", ("dotprod", "neon"), 128, "int8"),)
