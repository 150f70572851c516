"""Sums of an odd number of blocks of output channels, read in pairs all the same: the last pair overlaps the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import s_tir, tirx

from mrt.backend.kernels.generic.lower_blocks import KernelPass, lower_loops, without_marks
from mrt.backend.te.stages import Hint
from mrt.backend.tir.expressions import constant, substitute
from mrt.backend.tir.statements import sequence
from mrt.symbol.passes import Property

PAIR = 2
"""Blocks of output channels whose sums are read as one vector, since the int16s of two fill one."""


@dataclass(frozen=True)
class OverlapPairs(KernelPass):
    """Marked loops over an odd number of blocks go over pairs of them, the last of which overlaps the one before.

    What they store must not be made of what it is stored over, since some of it is computed twice.
    """

    marks: ClassVar[tuple[str, ...]] = (Hint.OVERLAPS,)
    ensures: ClassVar[tuple[Property, ...]] = (without_marks(Hint.OVERLAPS),)

    def lower(self, function: Any) -> Any:
        return lower_loops(function, Hint.OVERLAPS, _in_pairs)


def _in_pairs(blocks: Any) -> Any:
    lane, count = blocks.body, int(blocks.extent)
    pair = tirx.Var("pair", "int32")
    first = tirx.min(pair * PAIR, constant(count - PAIR, "int32"))
    body = sequence(
        s_tir.SBlockRealize(substitute(each.iter_values, [blocks.loop_var], [first]), each.predicate, each.block)
        for each in (lane.body.seq if isinstance(lane.body, tirx.SeqStmt) else [lane.body])
    )
    inner = tirx.For(lane.loop_var, lane.min, constant(PAIR * int(lane.extent), "int32"), lane.kind, body)
    return tirx.For(pair, blocks.min, constant(-(-count // PAIR), "int32"), blocks.kind, inner)
