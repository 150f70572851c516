"""Memory of tensors, which begins where kernels need it to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
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


def side_by_side(sizes: Iterable[int]) -> tuple[list[int], int]:
    """Where tensors of so many bytes begin that lie one behind the other, and the bytes of all, at least one."""
    places, end = [], 0
    for size in sizes:
        places.append(end)
        end += aligned(size)
    return places, max(end, 1)


class Shelf:
    """Memory in which tensors are put one behind the other, so that all of them together are one without a copy."""

    def __init__(self) -> None:
        self._held = empty((0,), np.uint8)
        self._places: dict[int, int] = {}
        self.size = 0
        """In bytes, of all that was put."""

    def reserve(self, size: int) -> None:
        """Makes room for so many bytes more. What is never filled takes no memory of the machine."""
        if self.size + size > len(self._held):
            larger = empty((self.size + aligned(size),), np.uint8)
            larger[: self.size] = self._held[: self.size]
            self._held = larger

    def put(self, array: Array) -> Any:
        """TVM's tensor of a copy of an array, which may lie in any order."""
        begin, end = self.size, self.size + array.nbytes
        if aligned(end) > len(self._held):
            self.reserve(max(aligned(array.nbytes), self.size))
        held = self._held[begin:end].view(array.dtype).reshape(array.shape)
        held[...] = array
        self._held[end : aligned(end)] = 0
        tensor = tvm_ffi.from_dlpack(held)
        if array.nbytes:  # the address of nothing may be any
            self._places[tensor.data_ptr()] = begin
        self.size = aligned(end)
        return tensor

    def place(self, tensor: Any) -> int:
        """At which byte of `content` a tensor begins, which is put there where it lies elsewhere.

        Memory is told by its address, so that the tensors that are asked about must be held.
        """
        if not math.prod(tensor.shape):
            return 0
        address = tensor.data_ptr()
        if address not in self._places:
            self._places[address] = self.size
            self.put(np.from_dlpack(tensor))
        return self._places[address]

    @property
    def content(self) -> Any:
        """All that was put, as one tensor of bytes, at least one."""
        if not self.size:
            self.put(np.zeros(1, np.uint8))
        return tvm_ffi.from_dlpack(self._held[: self.size])
