"""Statements of TVM, which cannot be changed: the same ones are made anew around other bodies; and simple new ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tvm import ir, s_tir, tirx

from mrt.backend.tir.expressions import Expression, constant

ROLLED = "mrt.rolled"
"""Marks a loop that LLVM is not to unroll (see `link/rolled_loops.py`)."""
MANY = 8
"""Turns from which on no loop is unrolled whose vectors schedules have written out."""


def with_root(
    function: Any, body: Any, buffers: Sequence[Any] | None = None, parameters: Sequence[Any] | None = None
) -> Any:
    """The PrimFunc with another body of its root block.

    buffers: what the root allocates instead. parameters: what the function takes instead.
    """
    kept = function.body.block.alloc_buffers if buffers is None else buffers
    taken = function.params if parameters is None else parameters
    return tirx.PrimFunc(taken, plain_block("root", body, kept), function.ret_type, function.attrs)


def plain_block(
    name: str, body: Any, buffers: Sequence[Any] = (), reads: Sequence[Any] = (), writes: Sequence[Any] = ()
) -> Any:
    """A block without axes that allocates `buffers`. reads, writes: the regions that it declares."""
    return s_tir.SBlockRealize([], True, s_tir.SBlock([], reads, writes, name, body, alloc_buffers=buffers))


def around(statement: Any, body: Any) -> Any:
    """A loop, the realization of a block or a statement with an attribute, with another body."""
    if isinstance(statement, tirx.For):
        return loop_around(statement, body)
    if isinstance(statement, tirx.AttrStmt):
        return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, body)
    held = statement.block
    block = s_tir.SBlock(
        held.iter_vars,
        held.reads,
        held.writes,
        held.name_hint,
        body,
        held.init,
        held.alloc_buffers,
        held.match_buffers,
        held.annotations,
    )
    return s_tir.SBlockRealize(statement.iter_values, statement.predicate, block)


def loop_around(loop: Any, body: Any, kind: Any = None, marks: Mapping[str, Any] | None = None) -> Any:
    """The loop with another body, and of another kind or with other annotations if these are given."""
    kept = loop.annotations if marks is None else marks
    turns = loop.kind if kind is None else kind
    return tirx.For(loop.loop_var, loop.min, loop.extent, turns, body, annotations=kept)


def taken_apart(nest: Any) -> tuple[list[Any], Any]:
    """Loops around each other, the outermost first, and what the last one goes over."""
    loops = []
    while isinstance(nest, tirx.For):
        loops.append(nest)
        nest = nest.body
    return loops, nest


def nested(loops: Sequence[Any], body: Any) -> Any:
    """Loops around each other, the outermost first, with another body of the last."""
    for loop in reversed(loops):
        body = loop_around(loop, body)
    return body


def with_values(statement: Any, values: Mapping[Any, Any]) -> Any:
    """The statement with values in place of variables, and with other buffers in place of some."""
    # TVM puts a buffer in place of another one only where both are parameters.
    variables = [each for each in values.values() if isinstance(each, tirx.Var)]
    return tirx.PrimFunc([*values, *variables], statement).specialize(dict(values)).body


def whole_region(buffer: Any) -> Any:
    """All of a buffer, as what a block reads or writes."""
    return tirx.BufferRegion(buffer, [ir.Range(0, length) for length in buffer.shape])


def sequence(statements: Iterable[Any]) -> Any:
    """Statements one after the other."""
    flat = [each for made in statements for each in (made.seq if isinstance(made, tirx.SeqStmt) else [made])]
    return flat[0] if len(flat) == 1 else tirx.SeqStmt(flat)


def bound(name: str, value: Expression) -> Any:
    """A statement that holds a value in a new variable, its `var`, for the statements that follow.

    Unlike a value that is written where it is used, it goes through all passes of TVM once.
    """
    return tirx.Bind(tirx.Var(name, value.ty), value)


def vectorized(variable: Any, lanes: int, body: Any) -> Any:
    """A loop of `variable` from 0 as one vector."""
    return tirx.For(variable, constant(0, "int32"), constant(lanes, "int32"), tirx.ForKind.VECTORIZED, body)


def unrolled(variable: Any, times: int, body: Any) -> Any:
    """A loop of `variable` from 0, of which every turn is written out."""
    return tirx.For(variable, constant(0, "int32"), constant(times, "int32"), tirx.ForKind.UNROLLED, body)


def serial(variable: Any, times: int | Expression, body: Any, mark: str = "") -> Any:
    """A loop of `variable` from 0. mark: an annotation of it that says nothing more."""
    turns = constant(times, "int32") if isinstance(times, int) else times
    marks = {mark: 1} if mark else {}
    return tirx.For(variable, constant(0, "int32"), turns, tirx.ForKind.SERIAL, body, annotations=marks)
