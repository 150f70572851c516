"""Tiles of positions that are jammed: their dots are summed in the same loops, so that weights are loaded once for all.

Tiles that a schedule forms are alike. Of an odd number of lines, such as the seven of a map of 7 x 7, two fill the
registers and one is left over, so that the loop over tiles is written anew ("unroll and jam").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tvm
from tvm import s_tir, tirx

from mrt.backend.kernels.generic.lower_blocks import replace_loops, sequence, serial
from mrt.backend.te.stages import Hint
from mrt.backend.tir.expressions import Expression, constant
from mrt.backend.tir.statements import loop_around, with_root


def jam_tiles(function: Any) -> Any:
    """The scheduled function in which as many turns of a loop as its mark `Hint.JAMMED` says are done as one.

    The turns that are left over are done behind them, with local memory of their own: that of a loop is kept in
    registers.
    """
    if not any(_are_jammed(function.body.block.body)):
        return function
    local = list(function.body.block.alloc_buffers)
    added: list[Any] = []

    def written(loop: Any) -> Any:
        turns, together = int(loop.extent), int(loop.annotations[Hint.JAMMED])
        variable = tirx.Var(loop.loop_var.name, "int32")
        jammed = _jammed(loop, [variable * together + i for i in range(together)], {})
        whole = serial(variable, turns // together, jammed)
        if turns % together == 0:
            return whole
        made = [buffer for buffer in local if any(buffer.same_as(each) for each in _results(loop))]
        copies = {each: tirx.decl_buffer(each.shape, str(each.dtype), f"{each.name}_left") for each in made}
        added.extend(copies.values())
        left = [constant(turn, "int32") for turn in range(turns - turns % together, turns)]
        return sequence([whole, _jammed(loop, left, copies)])

    made = replace_loops(function, Hint.JAMMED, written)
    made = with_root(made, made.body.block.body, [*local, *added])
    # Each turn has loops and values of its own, which bear the names of the first one's.
    return s_tir.transform.ConvertSSA()(tvm.IRModule({"main": made}))["main"]


def _are_jammed(statement: Any) -> Iterator[bool]:
    """Of each loop that is not within another one that is jammed, whether it is."""
    if isinstance(statement, tirx.SeqStmt):
        for each in statement.seq:
            yield from _are_jammed(each)
    elif isinstance(statement, tirx.For):
        yield Hint.JAMMED in statement.annotations
        yield from _are_jammed(statement.body)


def _results(statement: Any) -> Iterator[Any]:
    """The buffers that blocks within loops write."""
    if isinstance(statement, tirx.SeqStmt):
        for each in statement.seq:
            yield from _results(each)
    elif isinstance(statement, tirx.For):
        yield from _results(statement.body)
    elif isinstance(statement, s_tir.SBlockRealize):
        yield from (region.source for region in statement.block.writes)


def _jammed(loop: Any, places: Sequence[Expression], buffers: Mapping[Any, Any]) -> Any:
    """What the loop does at these places, as one, with other buffers in place of some."""
    return _together([_with_own_parts(_replaced(loop.body, {loop.loop_var: at, **buffers})) for at in places])


def _replaced(statement: Any, values: Mapping[Any, Any]) -> Any:
    """The statement with values in place of variables, and with other buffers in place of some."""
    # TVM puts a buffer in place of another one only where both are parameters.
    variables = [each for each in values.values() if isinstance(each, tirx.Var)]
    return tirx.PrimFunc([*values, *variables], statement).specialize(dict(values)).body


def _with_own_parts(statement: Any) -> Any:
    """The statement with own buffers for parts of others, each of which TVM takes for one part only."""
    if isinstance(statement, tirx.SeqStmt):
        return tirx.SeqStmt([_with_own_parts(each) for each in statement.seq])
    if isinstance(statement, tirx.For):
        return loop_around(statement, _with_own_parts(statement.body))
    if not isinstance(statement, s_tir.SBlockRealize) or not statement.block.match_buffers:
        return statement
    block = statement.block
    parts = [each.buffer for each in block.match_buffers]
    own = {each: tirx.decl_buffer(each.shape, str(each.dtype), each.name, offset_factor=1) for each in parts}
    made = s_tir.SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        _replaced(block.body, own),
        block.init,
        block.alloc_buffers,
        [s_tir.MatchBufferRegion(own[each.buffer], each.source) for each in block.match_buffers],
        block.annotations,
    )
    return s_tir.SBlockRealize(statement.iter_values, statement.predicate, made)


def _together(turns: Sequence[Any]) -> Any:
    """What turns of a loop do, as one: statement by statement, within the loops that all of them have."""
    first = turns[0]
    if isinstance(first, tirx.SeqStmt):
        return sequence(_together(each) for each in zip(*(turn.seq for turn in turns), strict=True))
    if isinstance(first, tirx.For) and first.kind == tirx.ForKind.SERIAL and not first.annotations:
        bodies = [first.body, *(_replaced(turn.body, {turn.loop_var: first.loop_var}) for turn in turns[1:])]
        return loop_around(first, _together(bodies))
    return sequence(turns)
