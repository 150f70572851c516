"""Object files of data: what a linker and the system's loader make of them, and that LLVM's hold the same."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from mrt.backend.build import library_objects
from mrt.backend.link.data_object import SECTION, data_object
from mrt.backend.link.kernel_compiler import as_object
from mrt.backend.link.kernel_pipeline import KERNELS
from mrt.runtime.code import Linkable
from mrt.runtime.elf import HEADER_64

OTHER_FORMAT = "x86_64-apple-macosx"
RISCV = {"mtriple": "riscv64-linux-gnu", "mattr": ["+f", "+d", "+c"], "mabi": "lp64d"}
"""Whose objects have flags."""


def machine_code(**facts: object) -> bytes:
    target = tvm.target.Target({"kind": "llvm", **facts})
    return as_object(tirx.build(tvm.IRModule({}), target, KERNELS))


def sections(content: bytes) -> list[tuple[int, ...]]:
    """The table of an object file's sections."""
    *_, place, _, _, _, _, _, count, _ = HEADER_64.unpack_from(content)
    return [SECTION.unpack_from(content, place + SECTION.size * i) for i in range(count)]


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 100_003])
def test_whoever_loads_the_library_reads_the_bytes(size: int, tmp_path: Path) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    own = machine_code()
    objects = [data_object(name, content, own) for name, content in (("first", data), ("second", b"behind"))]
    Linkable([own, *(each for each in objects if each is not None)]).link(tmp_path / "data.so")
    library = ctypes.CDLL(str(tmp_path / "data.so"))
    assert bytes((ctypes.c_char * size).in_dll(library, "first")) == data
    assert bytes((ctypes.c_char * 6).in_dll(library, "second")) == b"behind"


@pytest.mark.parametrize(
    ("facts", "has_flags"),
    [({"mtriple": "x86_64-linux-gnu"}, False), ({"mtriple": "aarch64-linux-gnu"}, False), (RISCV, True)],
    ids=["x86-64", "aarch64", "RISC-V"],
)
def test_it_is_for_the_machine_of_the_other_object(facts: dict[str, object], has_flags: bool) -> None:
    """By its number, and by the flags, which tell how RISC-V passes numbers: linkers refuse a mixture."""
    like = machine_code(**facts)
    made = data_object("name", b"data", like)
    assert made is not None
    machine, flags = (HEADER_64.unpack_from(made)[i] for i in (2, 7))
    assert [machine, flags] == [HEADER_64.unpack_from(like)[i] for i in (2, 7)]
    assert (flags != 0) is has_flags


def test_the_stack_stays_without_code(tmp_path: Path) -> None:
    """A file without the section that says so would make the stack of the whole process executable."""
    own = machine_code()
    made = data_object("name", b"data", own)
    assert made is not None
    Linkable([own, made]).link(tmp_path / "data.so")
    library = (tmp_path / "data.so").read_bytes()
    place, size, count = struct.unpack_from("<32xQ14xHH", library)
    segments = [struct.unpack_from("<II", library, place + size * i) for i in range(count)]
    stack, executable = 0x6474E551, 1
    assert [flags & executable for kind, flags in segments if kind == stack] == [0]


@pytest.mark.parametrize("triple", [None, OTHER_FORMAT])
def test_the_bytecode_is_that_of_an_object_by_llvm(triple: str | None) -> None:
    """Of another format than ELF it is LLVM's."""
    target = tvm.target.Target({"kind": "llvm", **({"mtriple": triple} if triple else {})})
    bytecode, library = relax.ExecBuilder().get(), tirx.build(tvm.IRModule({}), target, KERNELS)
    bytecode.mod.import_module(library)
    _, made = library_objects(bytecode.mod, library)
    pack = tvm.get_global_func("runtime.ModulePackImportsToLLVM")
    expected = as_object(pack(bytecode.mod, False, library["_get_target_string"](), ""))
    if triple is not None:
        assert made == expected
        return
    ours, theirs = (next(each for each in sections(content) if each[2] & 2 and each[5]) for content in (made, expected))
    assert made[ours[4] : ours[4] + ours[5]] == expected[theirs[4] : theirs[4] + theirs[5]]
