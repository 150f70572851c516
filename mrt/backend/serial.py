"""Code for one core: scheduled functions whose parallel loops run one turn after the other."""

from __future__ import annotations

from typing import Any

from tvm import s_tir, tirx


def without_threads(function: Any) -> Any:
    """The scheduled PrimFunc with plain loops for its parallel ones, so that no threads are started."""
    root = function.body.block
    block = s_tir.SBlock([], [], [], "root", _serial(root.body), alloc_buffers=root.alloc_buffers)
    return tirx.PrimFunc(function.params, s_tir.SBlockRealize([], True, block), function.ret_type, function.attrs)


def _serial(statement: Any) -> Any:
    if isinstance(statement, tirx.SeqStmt):
        return tirx.SeqStmt([_serial(each) for each in statement.seq])
    if isinstance(statement, tirx.AttrStmt):
        # Where threads would start.
        return _serial(statement.body)
    if isinstance(statement, s_tir.SBlockRealize) and not statement.iter_values:
        held = statement.block
        block = s_tir.SBlock(
            [],
            held.reads,
            held.writes,
            held.name_hint,
            _serial(held.body),
            None,
            held.alloc_buffers,
            [],
            held.annotations,
        )
        return s_tir.SBlockRealize([], statement.predicate, block)
    if not isinstance(statement, tirx.For):
        return statement
    kind = tirx.ForKind.SERIAL if statement.kind == tirx.ForKind.PARALLEL else statement.kind
    body, marks = _serial(statement.body), statement.annotations
    return tirx.For(statement.loop_var, statement.min, statement.extent, kind, body, annotations=marks)
