"""Large pages for memory that every call goes through: small ones are too many for the processor to look up fast."""

from __future__ import annotations

import ctypes
import sys

from mrt.symbol.quantized_tensor import Array

LARGE = 1 << 21
"""Bytes of a large page, at whose multiples they begin."""
MADV_HUGEPAGE, MADV_COLLAPSE = 14, 25
"""Advice to Linux: large pages for what is touched from now on, and for what has been."""


def ask_for_large_pages(array: Array) -> None:
    """Asks for large pages for the memory of an array, in so far as it fills some. Without them all is the same."""
    begin = array.ctypes.data
    first = -(-begin // LARGE) * LARGE
    size = (begin + array.nbytes) // LARGE * LARGE - first
    if sys.platform != "linux" or size <= 0:
        return
    advise = ctypes.CDLL(None).madvise
    for advice in (MADV_HUGEPAGE, MADV_COLLAPSE):
        advise(ctypes.c_void_p(first), ctypes.c_size_t(size), ctypes.c_int(advice))
