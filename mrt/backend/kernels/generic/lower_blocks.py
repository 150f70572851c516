"""Blocks whose loops are scheduled away: what they do is written statement by statement in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tvm import ir, s_tir, tirx

from mrt.backend.tir.expressions import Expression, constant
from mrt.backend.tir.statements import loop_around, nested, with_root

Writer = Callable[[Sequence[Any], Any], Any]
"""Of the loops around a block and its realization, gives the statement that stands for them."""


def write_blocks(function: Any, hint: str, writer: Writer) -> Any:
    """The scheduled function in which `writer` wrote every block that has the annotation `hint`.

    The loops that it is given are those within the last that has something else in it, too.
    """
    return with_root(function, _rewritten(function.body.block.body, hint, writer))


def _rewritten(statement: Any, hint: str, writer: Writer) -> Any:
    loops: list[Any] = []
    inner = statement
    while isinstance(inner, tirx.For):
        loops, inner = [*loops, inner], inner.body
    if isinstance(inner, s_tir.SBlockRealize):
        return writer(loops, inner) if hint in inner.block.annotations else statement
    if isinstance(inner, tirx.SeqStmt):
        inner = tirx.SeqStmt([_rewritten(each, hint, writer) for each in inner.seq])
    return nested(loops, inner)


def replace_loops(function: Any, hint: str, replaced: Callable[[Any], Any]) -> Any:
    """The scheduled function with `replaced` of every loop that has the annotation `hint`."""
    return with_root(function, _with_loops(function.body.block.body, hint, replaced))


def _with_loops(statement: Any, hint: str, replaced: Callable[[Any], Any]) -> Any:
    if isinstance(statement, tirx.SeqStmt):
        return tirx.SeqStmt([_with_loops(each, hint, replaced) for each in statement.seq])
    if not isinstance(statement, tirx.For):
        return statement
    if hint in statement.annotations:
        return replaced(statement)
    return loop_around(statement, _with_loops(statement.body, hint, replaced))


def written_block(name: str, reads: Sequence[Any], region: Any, statements: Iterable[Any], own: Any = None) -> Any:
    """Statements that read the tensors `reads` anywhere, and the region `own`, if any, and write `region`."""
    read = [tirx.BufferRegion(each, [ir.Range(0, length) for length in each.shape]) for each in reads]
    # Else TVM would keep memory only for the elements whose addresses it sees.
    marks = {"explicit_write_region": [0]} | ({"explicit_read_region": [len(read)]} if own is not None else {})
    made = s_tir.SBlock(
        [],
        [*read, own] if own is not None else read,
        [region],
        name,
        sequence(statements),
        annotations=marks,
    )
    return s_tir.SBlockRealize([], True, made)


def sequence(statements: Iterable[Any]) -> Any:
    """Statements one after the other."""
    flat = [each for made in statements for each in (made.seq if isinstance(made, tirx.SeqStmt) else [made])]
    return flat[0] if len(flat) == 1 else tirx.SeqStmt(flat)


def vectorized(variable: Any, lanes: int, body: Any) -> Any:
    """A loop of `variable` from 0 as one vector."""
    return tirx.For(variable, constant(0, "int32"), constant(lanes, "int32"), tirx.ForKind.VECTORIZED, body)


def serial(variable: Any, times: int | Expression, body: Any, mark: str = "") -> Any:
    """A loop of `variable` from 0. mark: an annotation of it that says nothing more."""
    turns = constant(times, "int32") if isinstance(times, int) else times
    marks = {mark: 1} if mark else {}
    return tirx.For(variable, constant(0, "int32"), turns, tirx.ForKind.SERIAL, body, annotations=marks)
