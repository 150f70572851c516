"""The CPU that code is made for: TVM's target, and how wide its vectors are."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.target import codegen

from mrt.errors import CompilationError

INSTRUCTIONS = (
    (("avx512vnni",), 512, 32, "llvm.x86.avx512.vpdpbusd.512", "llvm.x86.avx512.vpdpwssd.512"),
    (("avx512bw",), 512, 32, "", "llvm.x86.avx512.pmaddw.d.512"),
    (("avx512f",), 512, 32, "", ""),
    (("avxvnni", "avx2"), 256, 16, "llvm.x86.avx512.vpdpbusd.256", "llvm.x86.avx512.vpdpwssd.256"),
    (("avx2",), 256, 16, "", "llvm.x86.avx2.pmadd.wd"),
    (("sse2",), 128, 16, "", "llvm.x86.sse2.pmadd.wd"),
    (("dotprod", "neon"), 128, 32, "llvm.aarch64.neon.sdot", ""),
    (("neon",), 128, 32, "", ""),
)
"""By features, the best first: vector bits, vector registers, instructions for products of bytes and of words.

Instructions that saturate, such as pmaddubs, are not among them."""

Target = str | Mapping[str, Any]
"""What a caller names: "llvm" for the CPU of this machine, or TVM's JSON form, as a mapping or as text."""


@dataclass(frozen=True)
class Machine:
    """A CPU.

    target: TVM's. vector_bits: width of the vector registers. registers: how many of them. threads: cores to use.
    multiplies_bytes: LLVM's instruction that adds four products of bytes to each int32, none if empty; data_is_signed:
    whether it takes the data as int8 and not as uint8, the weights being int8.
    multiplies_words: the one that adds two products of int16, or that gives their sum.
    """

    target: Any
    vector_bits: int
    registers: int
    threads: int
    multiplies_bytes: str = ""
    multiplies_words: str = ""
    data_is_signed: bool = False

    @classmethod
    def of(cls, target: Target = "llvm") -> Machine:
        """The machine that `target` names; CompilationError if TVM does not know it."""
        try:
            made = tvm.target.Target(_attributes(target))
        except (ValueError, TypeError, RuntimeError) as error:
            raise CompilationError(f"target {target!r} is not known to TVM: {one_line(error)}") from error
        if made.kind.name != "llvm":
            raise CompilationError(f"target {target!r} is of kind {made.kind.name}; llvm is needed")
        cpu, triple = made.attrs.get("mcpu"), made.attrs.get("mtriple", codegen.llvm_get_system_triple())
        if cpu is not None and not codegen.llvm_is_valid_cpu(cpu, triple):
            raise CompilationError(f"target {target!r}: LLVM knows no CPU {cpu} for {triple}")
        threads = int(made.attrs.get("num-cores", _cores()))
        for features, bits, registers, of_bytes, of_words in INSTRUCTIONS:
            if all(codegen.target_has_features(feature, made) for feature in features):
                return cls(made, bits, registers, threads, of_bytes, of_words, "aarch64" in of_bytes)
        return cls(made, 128, 16, threads)


def _attributes(target: Target) -> dict[str, Any]:
    if isinstance(target, str):
        attributes = json.loads(target) if target.lstrip().startswith("{") else {"kind": target}
    else:
        attributes = dict(target)
    if attributes == {"kind": "llvm"}:
        return {"kind": "llvm", "mcpu": codegen.llvm_get_system_cpu(), "num-cores": _cores()}
    return attributes


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def one_line(error: BaseException) -> str:
    """The line of a TVM error that says what happened: its last one that is no traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(("File ", "^", "Stack trace"))]
    return (said[-1] if said else type(error).__name__)[:300]
