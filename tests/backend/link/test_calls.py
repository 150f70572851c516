"""Calls of kernels as machine code: all of them in their order, with the pointers that are stated, until one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx

from mrt.backend.link.calls import FAR, PART, Calls, Pointer, write_calls
from mrt.backend.link.kernel_pipeline import KERNELS

KERNEL = "mrt.tests.kernel"
SIZES = (64, 256)


@pytest.fixture
def seen() -> Iterator[list[tuple[int, ...]]]:
    """The addresses that each call of KERNEL is given; it fails where the two are the same.

    Names that are not imported are looked up among TVM's global functions.
    """
    calls: list[tuple[int, ...]] = []

    def kernel(*pointers: Any) -> None:
        calls.append(tuple(pointer.value for pointer in pointers))
        if len(set(calls[-1])) == 1:
            raise ValueError(f"call {len(calls)} reads what it writes")

    tvm.register_global_func(KERNEL, kernel, override=True)
    yield calls
    tvm_ffi.registry.remove_global_func(KERNEL)


def compiled(calls: Calls) -> Callable[..., Any]:
    target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
    return tirx.build(write_calls({"run": calls}, symbols=None), target, KERNELS)["run"]


def parameters() -> list[Any]:
    return [tirx.decl_buffer((size,), "uint8", f"tensor{i}") for i, size in enumerate(SIZES)]


@pytest.mark.parametrize("count", [0, 1, PART, PART + 1, 2 * PART + 5])
def test_every_call_is_made_in_order(seen: list[tuple[int, ...]], count: int) -> None:
    arguments = [(Pointer(0, i % SIZES[0]), Pointer(1, i % SIZES[1])) for i in range(count)]
    run = compiled(Calls(parameters(), [(KERNEL, each) for each in arguments]))
    tensors = [np.zeros(size, np.uint8) for size in SIZES]
    run(*map(tvm_ffi.from_dlpack, tensors))
    begins = [tensor.ctypes.data for tensor in tensors]
    assert seen == [tuple(begins[each.parameter] + each.offset for each in pair) for pair in arguments]


@pytest.mark.parametrize("place", [0, 3, PART - 1, PART, PART + 2])
def test_a_call_that_fails_is_the_last_and_says_why(seen: list[tuple[int, ...]], place: int) -> None:
    good, bad = (Pointer(0), Pointer(1)), (Pointer(1), Pointer(1))
    run = compiled(Calls(parameters(), [(KERNEL, bad if i == place else good) for i in range(PART + 4)]))
    with pytest.raises(ValueError, match=f"call {place + 1} reads what it writes"):
        run(*[tvm_ffi.from_dlpack(np.zeros(size, np.uint8)) for size in SIZES])
    assert len(seen) == place + 1


def test_copies_are_made_after_the_calls(seen: list[tuple[int, ...]]) -> None:
    calls = Calls(parameters(), [(KERNEL, (Pointer(0), Pointer(1)))], [(Pointer(1, 5), Pointer(0, 60), 4)])
    source, target = (np.arange(size, dtype=np.uint8) for size in SIZES)
    wanted = target.copy()
    wanted[5:9] = [60, 61, 62, 63]
    compiled(calls)(tvm_ffi.from_dlpack(source), tvm_ffi.from_dlpack(target))
    np.testing.assert_array_equal(target, wanted)
    assert len(seen) == 1


def test_pointers_beyond_two_gibibytes(seen: list[tuple[int, ...]]) -> None:
    """No byte there is touched, so that none is needed."""
    run = compiled(Calls(parameters(), [(KERNEL, (Pointer(0, FAR - 1), Pointer(0, FAR), Pointer(0, 3 * FAR)))]))
    tensors = [np.zeros(size, np.uint8) for size in SIZES]
    run(*map(tvm_ffi.from_dlpack, tensors))
    begin = tensors[0].ctypes.data
    assert seen == [(begin + FAR - 1, begin + FAR, begin + 3 * FAR)]
