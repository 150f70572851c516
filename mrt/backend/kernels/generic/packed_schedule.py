"""How sums of dots with packed weights are scheduled: all positions of some blocks of output channels in registers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import s_tir, tirx
from tvm.tirx.op import address_of

from mrt.backend.kernels.generic.lower_blocks import KernelPass, lower_loops, without_marks
from mrt.backend.kernels.generic.prefetch import DATA, FIRST_CACHE, LINE_BYTES, READ
from mrt.backend.schedule.loops import extent, parallelize, split_loops
from mrt.backend.te.stages import Hint
from mrt.backend.tir.expressions import Expression, constant, substitute
from mrt.backend.tir.statements import loop_around, sequence
from mrt.symbol.passes import Property

AHEAD_BYTES = 4096
"""How far ahead weights are prefetched: what comes from memory while one line does."""


def schedule_packed(plan: Any, unpacked: Any, sums: Any, output: Any) -> None:
    """The weights are walked once, in the order of their memory, and unpacked where they are multiplied.

    The output's loops are [positions..., channel]; the sums' are [positions..., block, lane, taps..., step, field,
    within], the last only where an instruction multiplies.
    """
    packed = plan.get(unpacked).reads[0].source
    held, lanes = int(packed.shape[-4]), int(packed.shape[-2])
    instruction = str(plan.get(sums).annotations[Hint.DOT])
    *positions, channel = plan.get_loops(output)
    group, block, lane = plan.split(channel, [None, held, lanes])
    plan.reorder(group, *positions, block, lane)
    spatial, steps = _scheduled_sums(plan, sums, group, bool(instruction))
    plan.compute_at(unpacked, spatial[-2], preserve_unit_loops=True)
    _vectorize_weights(plan, unpacked, bool(instruction))
    step = steps[-2]
    turn = math.prod(int(n) for n in packed.shape[-4:])
    plan.annotate(step, Hint.PREFETCH_PACKED, max(1, AHEAD_BYTES // turn))
    parallelize(plan, [group])
    *zeroed, last = list(plan.get_loops(plan.decompose_reduction(sums, steps[0])))[1:]
    for loop in [*zeroed, *positions, block]:
        plan.unroll(loop)
    plan.vectorize(last)
    plan.vectorize(lane)
    if instruction:
        plan.tensorize(spatial[-1], instruction)


def _scheduled_sums(plan: Any, sums: Any, group: Any, by_instruction: bool) -> tuple[list[Any], list[Any]]:
    """The loops of the sums of a group of blocks: those that say which sum, and those over steps."""
    reduced = len(split_loops(plan, sums)[1])
    plan.compute_at(sums, group, preserve_unit_loops=True)
    inside = list(plan.get_loops(sums))[1:]
    (*positions, block, lane), steps = inside[:-reduced], inside[-reduced:]
    within = [steps.pop()] if by_instruction else []
    plan.reorder(*steps, block, *positions, lane, *within)
    for loop in (steps[-1], block, *positions):
        plan.unroll(loop)
    if not by_instruction:
        plan.vectorize(lane)
    return [*positions, block, lane], steps


def _vectorize_weights(plan: Any, unpacked: Any, by_instruction: bool) -> None:
    *_, lane, within = plan.get_loops(unpacked)
    plan.vectorize(plan.fuse(lane, within) if by_instruction else lane)


@dataclass(frozen=True)
class PrefetchPacked(KernelPass):
    """Prefetches the packed weights of so many turns later in the marked loops: their own memory, line by line."""

    marks: ClassVar[tuple[str, ...]] = (Hint.PREFETCH_PACKED,)
    ensures: ClassVar[tuple[Property, ...]] = (without_marks(*marks),)

    def lower(self, function: Any) -> Any:
        return lower_loops(function, Hint.PREFETCH_PACKED, _prefetching)


def _prefetching(loop: Any) -> Any:
    block, at = _unpacking(loop.body)
    packed = block.reads[0].source
    held, *rest = (int(n) for n in packed.shape[-4:])
    number, *steps = at[:-3]
    turn = held * math.prod(rest)
    ahead = int(loop.annotations[Hint.PREFETCH_PACKED]) * turn
    place = [tirx.floordiv(number, held), *steps, *[constant(0, "int32")] * 3]
    lines = range(0, turn, LINE_BYTES)
    fetched = [_prefetch(tirx.BufferLoad(packed, [*place, constant(ahead + line, "int32")])) for line in lines]
    return loop_around(loop, sequence([*fetched, loop.body]), marks={})


def _prefetch(element: Any) -> Any:
    """Fetches the line of an element, which may lie beyond the end of its memory: nothing is fetched there."""
    numbers = (constant(number, "int32") for number in (READ, FIRST_CACHE, DATA))
    return tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", address_of(element), *numbers))


def _unpacking(statement: Any) -> tuple[Any, list[Expression]]:
    """The block that unpacks weights, and its index in the first turn of the loops within `statement`."""
    variables: list[Any] = []
    while not isinstance(statement, s_tir.SBlockRealize):
        if isinstance(statement, tirx.SeqStmt):
            statement = statement.seq[0]
        else:
            variables, statement = [*variables, statement.loop_var], statement.body
    zeros = [constant(0, "int32")] * len(variables)
    return statement.block, substitute(statement.iter_values, variables, zeros)
