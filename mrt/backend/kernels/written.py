"""Blocks whose loops are scheduled away: what they do is written statement by statement in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tvm import ir, s_tir, tirx

from mrt.backend.expressions import constant

Writer = Callable[[Sequence[Any], Any], Any]
"""Of the loops around a block and its realization, gives the statement that stands for them."""


def write_blocks(function: Any, hint: str, writer: Writer) -> Any:
    """The scheduled function in which `writer` wrote every block that has the annotation `hint`.

    The loops that it is given are those within the last that has something else in it, too.
    """
    root = function.body.block
    block = s_tir.SBlock([], [], [], "root", _rewritten(root.body, hint, writer), alloc_buffers=root.alloc_buffers)
    return tirx.PrimFunc(function.params, s_tir.SBlockRealize([], True, block), function.ret_type, function.attrs)


def _rewritten(statement: Any, hint: str, writer: Writer) -> Any:
    loops: list[Any] = []
    inner = statement
    while isinstance(inner, tirx.For):
        loops, inner = [*loops, inner], inner.body
    if isinstance(inner, s_tir.SBlockRealize):
        return writer(loops, inner) if hint in inner.block.annotations else statement
    if isinstance(inner, tirx.SeqStmt):
        inner = tirx.SeqStmt([_rewritten(each, hint, writer) for each in inner.seq])
    for loop in reversed(loops):
        inner = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, inner, annotations=loop.annotations)
    return inner


def replace_loops(function: Any, hint: str, replaced: Callable[[Any], Any]) -> Any:
    """The scheduled function with `replaced` of every loop that has the annotation `hint`."""
    root = function.body.block
    body = _with_loops(root.body, hint, replaced)
    block = s_tir.SBlock([], [], [], "root", body, alloc_buffers=root.alloc_buffers)
    return tirx.PrimFunc(function.params, s_tir.SBlockRealize([], True, block), function.ret_type, function.attrs)


def _with_loops(statement: Any, hint: str, replaced: Callable[[Any], Any]) -> Any:
    if isinstance(statement, tirx.SeqStmt):
        return tirx.SeqStmt([_with_loops(each, hint, replaced) for each in statement.seq])
    if not isinstance(statement, tirx.For):
        return statement
    if hint in statement.annotations:
        return replaced(statement)
    body, marks = _with_loops(statement.body, hint, replaced), statement.annotations
    return tirx.For(statement.loop_var, statement.min, statement.extent, statement.kind, body, annotations=marks)


def written_block(name: str, reads: Sequence[Any], region: Any, statements: Iterable[Any]) -> Any:
    """Statements that read the tensors `reads` anywhere and write `region`."""
    read = [tirx.BufferRegion(each, [ir.Range(0, length) for length in each.shape]) for each in reads]
    made = s_tir.SBlock(
        [],
        read,
        [region],
        name,
        sequence(statements),
        # Else TVM would keep memory only for the elements whose addresses it sees.
        annotations={"explicit_write_region": [0]},
    )
    return s_tir.SBlockRealize([], True, made)


def sequence(statements: Iterable[Any]) -> Any:
    """Statements one after the other."""
    flat = [each for made in statements for each in (made.seq if isinstance(made, tirx.SeqStmt) else [made])]
    return flat[0] if len(flat) == 1 else tirx.SeqStmt(flat)


def vectorized(variable: Any, lanes: int, body: Any) -> Any:
    """A loop of `variable` from 0 as one vector."""
    return tirx.For(variable, constant(0, "int32"), constant(lanes, "int32"), tirx.ForKind.VECTORIZED, body)


def serial(variable: Any, times: int, body: Any) -> Any:
    """A loop of `variable` from 0."""
    return tirx.For(variable, constant(0, "int32"), constant(times, "int32"), tirx.ForKind.SERIAL, body)
