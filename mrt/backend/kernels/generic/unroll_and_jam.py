"""Unroll-and-jam: neighbouring tiles of positions are summed in the same loops, by weights loaded once.

Tiles that a schedule forms are alike. Of an odd number of lines, such as the seven of a map of 7 x 7, two fill the
registers and one is left over, so that the loop over tiles is written anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from mrt.backend.kernels.generic.lower_blocks import KernelPass, lower_loops, without_marks
from mrt.backend.te.stages import Hint
from mrt.backend.tir.expressions import Expression, constant
from mrt.backend.tir.statements import ROLLED, loop_around, sequence, serial, with_root, with_values
from mrt.symbol.passes import Property

OF_STEPS = {Hint.TWO_STEPS, ROLLED}
"""Marks of loops over steps, which are lowered later and hold for merged ones as well."""


@dataclass(frozen=True)
class UnrollAndJam(KernelPass):
    """As many turns of a loop as its mark says are done as one.

    The turns that are left over are done behind them, with local memory of their own: that of a loop is kept in
    registers.
    """

    marks: ClassVar[tuple[str, ...]] = (Hint.UNROLL_AND_JAM,)
    ensures: ClassVar[tuple[Property, ...]] = (without_marks(Hint.UNROLL_AND_JAM),)

    def lower(self, function: Any) -> Any:
        local = list(function.body.block.alloc_buffers)
        added: list[Any] = []

        def jammed(loop: Any) -> Any:
            turns, count = int(loop.extent), int(loop.annotations[Hint.UNROLL_AND_JAM])
            variable = tirx.Var(loop.loop_var.name, "int32")
            whole = serial(variable, turns // count, _jammed(loop, [variable * count + i for i in range(count)], {}))
            if turns % count == 0:
                return whole
            made = [buffer for buffer in local if any(buffer.same_as(each) for each in _results(loop))]
            copies = {each: tirx.decl_buffer(each.shape, str(each.dtype), f"{each.name}_left") for each in made}
            added.extend(copies.values())
            left = [constant(turn, "int32") for turn in range(turns - turns % count, turns)]
            return sequence([whole, _jammed(loop, left, copies)])

        made = lower_loops(function, Hint.UNROLL_AND_JAM, jammed)
        made = with_root(made, made.body.block.body, [*local, *added])
        # Each turn has loops and values of its own, which bear the names of the first one's.
        return s_tir.transform.ConvertSSA()(tvm.IRModule({"main": made}))["main"]


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
    return _merged([_with_own_parts(with_values(loop.body, {loop.loop_var: at, **buffers})) for at in places])


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
        with_values(block.body, own),
        block.init,
        block.alloc_buffers,
        [s_tir.MatchBufferRegion(own[each.buffer], each.source) for each in block.match_buffers],
        block.annotations,
    )
    return s_tir.SBlockRealize(statement.iter_values, statement.predicate, made)


def _merged(turns: Sequence[Any]) -> Any:
    """What turns of a loop do, merged: statement by statement, within the loops that all of them have.

    Loops of an epilogue, whose marks are lowered later, stay apart.
    """
    first = turns[0]
    if isinstance(first, tirx.SeqStmt):
        return sequence(_merged(each) for each in zip(*(turn.seq for turn in turns), strict=True))
    if isinstance(first, tirx.For) and first.kind == tirx.ForKind.SERIAL and set(first.annotations) <= OF_STEPS:
        bodies = [first.body, *(with_values(turn.body, {turn.loop_var: first.loop_var}) for turn in turns[1:])]
        return loop_around(first, _merged(bodies))
    return sequence(_done_once(turns))


def _done_once(turns: Sequence[Any]) -> list[Any]:
    """The turns without those that fetch what one before fetches: weights are the same for all positions.

    What is evaluated by itself here is a fetch; all that computes stands in blocks.
    """
    done: list[Any] = []
    for turn in turns:
        if not (isinstance(turn, tirx.Evaluate) and any(tvm_ffi.structural_equal(turn, each) for each in done)):
            done.append(turn)
    return done
