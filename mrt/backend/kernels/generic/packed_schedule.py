"""How sums of dots with packed weights are scheduled: all positions of some blocks of output channels in registers."""

from __future__ import annotations

from typing import Any

from mrt.backend.memory.storage import VECTOR
from mrt.backend.schedule.loops import extent, parallelize, split_loops
from mrt.backend.te.stages import Hint


def schedule_packed(plan: Any, unpacked: Any, sums: Any, output: Any) -> None:
    """The weights are walked once, in the order of their memory, and unpacked where they are multiplied.

    One stream in this order is fetched by the processor as fast as memory gives it; prefetches made it half as fast.

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


def schedule_bytes(plan: Any, block: Any) -> None:
    """Vectors of the data's bytes, by one core: others would wait for each other longer than it takes."""
    last = plan.get_loops(block)[-1]
    if extent(plan, last) % VECTOR == 0:
        _, vector = plan.split(last, [None, VECTOR])
        plan.vectorize(vector)
