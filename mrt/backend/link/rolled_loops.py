"""Loops that LLVM leaves as they are.

LLVM unrolls loops by the size of a CPU's buffer of operations, on Zen 4 up to thousands of them. Where schedules have
written out what is to be, that takes long and gains nothing; and of stores that follow each other it looks for those to
join, each with each. TVM cannot tell it not to unroll a loop. So one that is to stay calls a function that is no
instruction, touches no memory that is known, and may not be there twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tvm import ir, s_tir, tirx

from mrt.backend.tir.expressions import dtype_of
from mrt.backend.tir.statements import MANY, ROLLED, around, sequence

ONCE = "mrt_once"
DEFINED = f"""
define void @{ONCE}() {{
  call void asm sideeffect "", ""() noduplicate nounwind willreturn memory(inaccessiblemem: readwrite)
  ret void
}}
"""
"""The function in LLVM's language. It is inlined wherever it is called."""
IMPORT = "pragma_import_llvm"
"""TVM's attribute of statements that call functions in LLVM's language."""
WRITTEN_OUT = (tirx.ForKind.VECTORIZED, tirx.ForKind.UNROLLED)


def with_rolled_loops(function: Any) -> Any:
    """A scheduled PrimFunc, in whose loops that are to stay LLVM sees why not to unroll them: those that are marked
    `ROLLED`, and the innermost ones of many turns that go over vectors."""
    found = _rolled(function.body)
    if not found.any:
        return function
    return function.with_body(tirx.AttrStmt("default", IMPORT, ir.StringImm(DEFINED), found.made))


@dataclass(frozen=True)
class _Rolled:
    """made: a statement with the calls. any: whether there are any. vectors, floats: whether it stores any. loops:
    whether there is one of several turns in it that is not written out."""

    made: Any
    any: bool = False
    vectors: bool = False
    floats: bool = False
    loops: bool = False


def _rolled(statement: Any) -> _Rolled:
    if isinstance(statement, tirx.For):
        return _rolled_loop(statement)
    if isinstance(statement, tirx.BufferStore):
        dtype = dtype_of(statement.value)
        return _Rolled(statement, vectors="x" in dtype, floats=dtype.startswith("float"))
    if isinstance(statement, tirx.SeqStmt):
        parts = [_rolled(each) for each in statement.seq]
        has_any = any(part.any for part in parts)
        made = tirx.SeqStmt([part.made for part in parts]) if has_any else statement
        facts = {fact: any(getattr(part, fact) for part in parts) for fact in ("vectors", "floats", "loops")}
        return _Rolled(made, has_any, **facts)
    if isinstance(statement, (tirx.AttrStmt, s_tir.SBlockRealize)):
        part = _rolled(statement.block.body if isinstance(statement, s_tir.SBlockRealize) else statement.body)
        return replace(part, made=around(statement, part.made) if part.any else statement)
    return _Rolled(statement)


def _rolled_loop(loop: Any) -> _Rolled:
    part = _rolled(loop.body)
    if loop.kind in WRITTEN_OUT:
        made = around(loop, part.made) if part.any else loop
        vectors = part.vectors or loop.kind == tirx.ForKind.VECTORIZED
        return _Rolled(made, part.any, vectors, part.floats, part.loops)
    turns = int(loop.extent) if isinstance(loop.extent, tirx.IntImm) else MANY
    is_innermost = part.vectors and not part.floats and not part.loops and turns >= MANY
    made, has_any = part.made, part.any
    if loop.kind == tirx.ForKind.SERIAL and (is_innermost or ROLLED in loop.annotations):
        made, has_any = sequence([made, tirx.Evaluate(tirx.call_extern("void", ONCE))]), True
    made = around(loop, made) if has_any else loop
    return _Rolled(made, has_any, part.vectors, part.floats, part.loops or turns > 1)
