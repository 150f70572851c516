"""Memory of tensors, which begins where kernels need it to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm_ffi

from mrt.symbol import Array

ALIGNMENT = 64
"""Bytes at whose multiples tensors begin: a line of the cache, and the widest vector."""


def aligned(size: int) -> int:
    """The least multiple of ALIGNMENT that is no less."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def empty(shape: Sequence[int], dtype: Any) -> Array:
    """An array in order that begins at a multiple of ALIGNMENT.

    Its memory is NumPy's, which asks the system for large pages: touching many small ones for the first time takes
    longer than filling them.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    held = np.empty(size + ALIGNMENT, np.uint8)
    first = -held.ctypes.data % ALIGNMENT
    result: Array = held[first : first + size].view(dtype).reshape(shape)
    return result


def tensor_of(array: Array) -> Any:
    """TVM's tensor of a copy of an array, which may lie in any order."""
    held = empty(array.shape, array.dtype)
    held[...] = array
    return tvm_ffi.from_dlpack(held)
