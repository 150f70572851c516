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

Target = str | Mapping[str, Any]
"""What a caller names: "llvm" for the CPU of this machine, or TVM's JSON form, as a mapping or as text."""


@dataclass(frozen=True)
class Machine:
    """target: TVM's. vector_bits: width of the vector registers. registers: how many of them. threads: cores to use."""

    target: Any
    vector_bits: int
    registers: int
    threads: int

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
        for feature, bits, registers in (("avx512f", 512, 32), ("avx2", 256, 16)):
            if codegen.target_has_features(feature, made):
                return cls(made, bits, registers, threads)
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
