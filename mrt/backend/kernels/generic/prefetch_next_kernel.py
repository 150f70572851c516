"""Prefetch of the next kernel: what it reads is brought into the second cache while this one multiplies.

A kernel whose weights are in far memory waits for them, one that multiplies leaves memory idle. Constants lie in the
order of calls, so that what the next kernel reads follows the weights of this one: `link/one_function.py` says from
where on and how much, by two more pointers that such a kernel takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx
from tvm.tirx.op import address_of

from mrt.backend.kernels.generic.prefetch import DATA, MOST_LINES, READ, SECOND_CACHE
from mrt.backend.schedule.loops import LINE_BYTES
from mrt.backend.te.stages import Hint
from mrt.backend.tir.expressions import Expression, constant
from mrt.backend.tir.statements import around, loop_around, sequence, serial

LEAD_BYTES = 1 << 19
"""Bytes of a kernel's weights that are prefetched before it begins: more would drive out what is read now."""
COUNT_BYTES = 4
"""Bytes of the number of lines that a call prefetches."""


def prefetching_steps(function: Any) -> int:
    """How many steps of a scheduled function prefetch: the turns of all loops that are marked `Hint.PREFETCH_NEXT`.

    A function that has any takes two more pointers where it is made one of pointers.
    """
    return _counted(function.body).steps


def prefetch_parameters() -> list[Any]:
    """What a function that fetches takes besides: the memory that it fetches, and how many lines of a cache that is."""
    return [
        tirx.decl_buffer((1,), "uint8", "next_weights", data_alignment=1),
        tirx.decl_buffer((1,), "int32", "next_lines", data_alignment=COUNT_BYTES),
    ]


def with_prefetches(body: Any, steps: int, parameters: Sequence[Any]) -> Any:
    """The body of a function, each of whose `steps` fetches an even share of what `prefetch_parameters` say."""
    memory, count = parameters
    lines = tirx.BufferLoad(count, [constant(0, "int32")])
    share = tirx.min((lines + (steps - 1)) // steps, constant(MOST_LINES, "int32"))

    def fetch(step: Expression) -> Any:
        line = tirx.Var("line", "int32")
        held = tirx.BufferLoad(memory, [tirx.min(step * share + line, lines) * LINE_BYTES])
        numbers = (constant(number, "int32") for number in (READ, SECOND_CACHE, DATA))
        fetched = tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", address_of(held), *numbers))
        return serial(line, share, fetched)

    return before_each_step(body, fetch)


def before_each_step(statement: Any, made: Callable[[Expression], Any]) -> Any:
    """The statement with `made` of its number before each step."""
    return _numbered(_counted(statement), made, constant(0, "int32"))


@dataclass(frozen=True)
class _Counted:
    """A statement, how often loops with the annotation turn in it, and the same of the statements within."""

    statement: Any
    steps: int
    parts: tuple[_Counted, ...] = ()


def _counted(statement: Any) -> _Counted:
    if isinstance(statement, tirx.For):
        if Hint.PREFETCH_NEXT in statement.annotations:
            return _Counted(statement, int(statement.extent))
        body = _counted(statement.body)
        return _Counted(statement, body.steps and body.steps * int(statement.extent), (body,))
    parts = tuple(map(_counted, _parts(statement)))
    return _Counted(statement, sum(part.steps for part in parts), parts)


def _numbered(counted: _Counted, made: Callable[[Expression], Any], done: Expression) -> Any:
    """The statement with `made` before each step. done: the steps before the statement."""
    statement = counted.statement
    if not counted.steps:
        return statement
    if isinstance(statement, tirx.For):
        variable, marks = statement.loop_var, dict(statement.annotations)
        if marks.pop(Hint.PREFETCH_NEXT, None) is not None:
            body = sequence([made(done + variable), statement.body])
        else:
            (inner,) = counted.parts
            body = _numbered(inner, made, done + variable * inner.steps)
        return loop_around(statement, body, marks=marks)
    parts = []
    for part in counted.parts:
        parts.append(_numbered(part, made, done))
        done = done + part.steps
    if isinstance(statement, tirx.SeqStmt):
        return tirx.SeqStmt(parts)
    return around(statement, parts[0])


def _parts(statement: Any) -> list[Any]:
    """The statements of which one that is no loop is made, as far as steps may be in them."""
    if isinstance(statement, tirx.SeqStmt):
        return list(statement.seq)
    if isinstance(statement, s_tir.SBlockRealize):
        return [statement.block.body]
    return [statement.body] if isinstance(statement, tirx.AttrStmt) else []
