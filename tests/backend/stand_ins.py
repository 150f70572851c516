"""Runs code for x86 CPUs that this machine is not: functions in C stand in for the instructions that it lacks.

A module of TVM's is taken as LLVM's text, optimized as for the CPU. There an instruction that this machine may lack is
called by name, and the call becomes one of the function of that name in `x86_instructions.c`; vectors of 512 bits LLVM
itself cuts into those of AVX2. So a kernel is what that CPU would run, but for LLVM's choice of instructions.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import tirx

from mrt.backend import runner
from mrt.backend.machine import Machine
from mrt.cpu_flags import is_flagged, own_flags
from mrt.runtime import module

X86 = "x86_64-linux-gnu"
HERE = "x86-64-v3"
"""The CPU that code is made for in the end, which this machine is at least: one with AVX2."""
INSTRUCTION = r"@llvm\.x86\.(?!sse|ssse|avx\.|avx2\.|fma)[\w.]+|@syscall"
"""What is called by name and that CPU lacks, and Linux, who is asked for tile registers."""
DECLARATION = re.compile(rf"^declare (?P<result>.+?) (?P<name>{INSTRUCTION})\((?P<types>.*)\)[^)\n]*$", re.MULTILINE)
MASK = re.compile(r"<(\d+) x i1>")


@contextmanager
def standing_in(machine: Machine) -> Iterator[bool]:
    """Within it, what is compiled for the machine runs here; gives whether anything stands in for what this CPU lacks.

    That is for this process alone: machine code names functions by where they lie in its memory. Skips the test where
    nothing can stand in.
    """
    if not lacks(machine):
        yield False
        return
    if not can_stand_in():
        pytest.skip("this machine lacks what the code uses, and AVX2 and a C compiler for what could stand in for it")
    built = tirx.build

    def build(*arguments: Any) -> Any:
        return _loaded(stood_in(built(*arguments).inspect_source("ll")))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tirx, "build", build)
        for each in (runner, module):
            patch.setattr(each, "check_runs_here", lambda features: None)
        patch.setenv("MRT_CACHE", "off")
        yield True


@lru_cache(maxsize=1)
def can_stand_in() -> bool:
    """Whether this machine runs what stands in for other CPUs, and compiles it."""
    return not lacks(Machine.of({"mcpu": HERE, "mtriple": X86})) and shutil.which("cc") is not None


def lacks(machine: Machine) -> bool:
    """Whether code for the machine is of x86, and this one lacks some of what it uses."""
    if "sse2" not in machine.features:
        return False
    gets_tiles = not machine.has_tiles or Machine.of().has_tiles
    return not (gets_tiles and all(is_flagged(feature, own_flags()) for feature in machine.needs))


def stood_in(text: str) -> str:
    """LLVM's text of a module, for this machine."""
    text = re.sub('"target-cpu"="[^"]*"', f'"target-cpu"="{HERE}"', text)
    text = re.sub('"target-features"(="[^"]*")?', "", text)
    # TVM's own note of the target, a string of JSON in which LLVM writes \22 for a quotation mark.
    text = re.sub(r"(\\22mcpu\\22:\\22)[^\\]*", rf"\g<1>{HERE}", text)
    text = re.sub(r",\\22mattr\\22:\[[^\]]*\]", "", text)
    # LLVM writes this, and does not read it.
    text = re.sub(r"\b(private|internal) dllexport\b", r"\1", text)
    return re.sub(INSTRUCTION, lambda found: _local(found[0]), DECLARATION.sub(_calling, text))


def _calling(declaration: re.Match[str]) -> str:
    """A function that calls the one in C, with numbers as they are, and vectors in memory, masks as integers there."""
    result, name = declaration["result"], declaration["name"]
    types = [each.removesuffix(" immarg").strip() for each in re.findall(r"(?:<[^>]*>|[^,<])+", declaration["types"])]
    lines, passed = [], []
    for number, each in enumerate(types):
        held = MASK.sub(r"i\1", each)
        if each.startswith("<"):
            lines += [f"%at{number} = alloca {held}, align 64", f"%held{number} = bitcast {each} %{number} to {held}"]
            lines += [f"store {held} %held{number}, ptr %at{number}"]
            passed.append(f"ptr %at{number}")
        else:
            passed.append(f"{each} signext %{number}" if each == "i8" else f"{each} %{number}")
    function = f"inttoptr (i64 {_address(name)} to ptr)"
    if result.startswith("<"):
        lines += [f"%at = alloca {result}, align 64", f"call void {function}({', '.join([*passed, 'ptr %at'])})"]
        lines += [f"%result = load {result}, ptr %at", f"ret {result} %result"]
    elif result == "void":
        lines += [f"call void {function}({', '.join(passed)})", "ret void"]
    else:
        lines += [f"%result = call {result} {function}({', '.join(passed)})", f"ret {result} %result"]
    head = f"define internal {result} {_local(name)}({', '.join(types)}) noinline {{"
    return "\n".join([head, "entry:", *lines, "}"])


def _local(name: str) -> str:
    """What the function is called that calls the C function."""
    return "@stand_in." + name.removeprefix("@").removeprefix("llvm.x86.")


def _address(name: str) -> int:
    """Where the C function lies; AssertionError where there is none."""
    plain = name.removeprefix("@").removeprefix("llvm.x86.").replace(".", "_")
    function = getattr(instructions(), {"syscall": "syscall_"}.get(plain, plain), None)
    assert function is not None, f"x86_instructions.c has no {plain}"
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


@lru_cache(maxsize=1)
def instructions() -> ctypes.CDLL:
    """`x86_instructions.c`, compiled."""
    source = Path(__file__).with_name("x86_instructions.c")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "x86_instructions.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
        return ctypes.CDLL(str(library))


def _loaded(text: str) -> Any:
    with tempfile.NamedTemporaryFile("w", suffix=".ll", encoding="ascii") as file:
        file.write(text)
        file.flush()
        return tvm.runtime.load_module(file.name)
