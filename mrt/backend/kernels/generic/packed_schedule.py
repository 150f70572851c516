"""How sums of dots with packed weights are scheduled: all positions of some blocks of output channels in registers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mrt.backend.kernels.generic.prefetch import MOST_LINES
from mrt.backend.memory.storage import VECTOR
from mrt.backend.schedule.loops import LINE_BYTES, extent, parallelize, split_loops
from mrt.backend.te.stages import Hint

AHEAD = 4096
"""Bytes from the weights that a step multiplies to those that it prefetches: a page of memory, at whose end hardware
stops to fetch."""
MEMORY_DOTS = 2
"""That a vector of weights takes to come from memory."""


def schedule_packed(plan: Any, unpacked: Any, sums: Any, output: Any, total: Any = None) -> None:
    """The weights are walked once, in the order of their memory, and unpacked where they are multiplied.

    One stream in this order is fetched by the processor as fast as memory gives it. Where it does not wait for that,
    since weights take several dots each, it sees the end of a page too late: these prefetch. Others take up to twice as
    long so.

    The output's loops are [positions..., channel]; the sums' are [positions..., block, lane, taps..., step, field,
    within], the last only where an instruction multiplies.
    total: the block that adds up sums of slices (see `packed_slices`), which stay in registers beside it.
    """
    packed = plan.get(unpacked).reads[0].source
    held, _, lanes, _ = (int(length) for length in packed.shape[-4:])
    annotations = plan.get(sums).annotations
    instruction, joint = str(annotations[Hint.DOT]), bool(annotations[Hint.JOINT])
    *positions, channel = plan.get_loops(output)
    group, block, lane = plan.split(channel, [None, held, lanes])
    plan.reorder(group, *positions, block, lane)
    around = [group] if total is None else [group, _scheduled_total(plan, total, group)]
    block_loop, steps, lanes_loop = _scheduled_sums(plan, sums, around, bool(instruction), joint)
    plan.compute_at(unpacked, block_loop, preserve_unit_loops=True)
    _vectorize_weights(plan, unpacked, bool(instruction))
    if _multiplies_longer(plan, unpacked, sums, total is not None):
        plan.annotate(steps[-1] if joint else steps[-2], Hint.PREFETCH_STREAM, [AHEAD, 4])
    parallelize(plan, [group])
    if total is not None:
        _start(plan, total, around[-1], 1)
    _start(plan, sums, steps[0], len(around))
    for loop in (*positions, block):
        plan.unroll(loop)
    plan.vectorize(lane)
    if instruction:
        plan.tensorize(lanes_loop, instruction)


def _multiplies_longer(plan: Any, unpacked: Any, sums: Any, sliced: bool) -> bool:
    """Whether dots take longer than their weights take to come from memory, and a step prefetches a few lines only."""
    *_, held, planes, lanes, depth = (int(length) for length in plan.get(unpacked).reads[0].source.shape)
    positions = math.prod(int(length) for length in plan.get(sums).writes[0].source.shape[sliced:-2])
    dots = positions * int(plan.get(unpacked).writes[0].source.shape[-3])
    return dots > MEMORY_DOTS * planes and held * planes * lanes * depth <= MOST_LINES * LINE_BYTES


def _start(plan: Any, block: Any, loop: Any, outer: int) -> None:
    """Sets the sums of a block to 0 before `loop`, in registers, within so many outer loops."""
    *zeroed, lane = list(plan.get_loops(plan.decompose_reduction(block, loop)))[outer:]
    for each in zeroed:
        plan.unroll(each)
    plan.vectorize(lane)


def _scheduled_total(plan: Any, total: Any, group: Any) -> Any:
    """The loop over slices of what adds up their sums for a group of blocks."""
    plan.compute_at(total, group, preserve_unit_loops=True)
    *spatial, lane, slices = list(plan.get_loops(total))[1:]
    plan.reorder(slices, *spatial, lane)
    for loop in spatial:
        plan.unroll(loop)
    plan.vectorize(lane)
    return slices


def _scheduled_sums(
    plan: Any, sums: Any, around: Sequence[Any], by_instruction: bool, joint: bool
) -> tuple[Any, list[Any], Any]:
    """Of the sums of a group of blocks: the loop over blocks, those over steps around it, and that over lanes."""
    reduced = len(split_loops(plan, sums)[1])
    plan.compute_at(sums, around[-1], preserve_unit_loops=True)
    inside = list(plan.get_loops(sums))[len(around) :]
    (*positions, block, lane), steps = inside[:-reduced], inside[-reduced:]
    within = [steps.pop()] if by_instruction else []
    within[:0] = [steps.pop()] if joint else []
    plan.reorder(*steps, block, *positions, lane, *within)
    for loop in (*([] if joint else steps[-1:]), block, *positions):
        plan.unroll(loop)
    if not by_instruction:
        plan.vectorize(lane)
    return block, steps, lane


def _vectorize_weights(plan: Any, unpacked: Any, by_instruction: bool) -> None:
    *_, field, lane, within = plan.get_loops(unpacked)
    plan.unroll(field)
    plan.vectorize(plan.fuse(lane, within) if by_instruction else lane)


def schedule_bytes(plan: Any, block: Any) -> None:
    """Vectors of the data's bytes, by one core: others would wait for each other longer than it takes."""
    last = plan.get_loops(block)[-1]
    if extent(plan, last) % VECTOR == 0:
        _, vector = plan.split(last, [None, VECTOR])
        plan.vectorize(vector)
