"""Schedules of maps, one element from some others, and of reductions, as parallel and vectorized loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from tvm import ir, tirx

from mrt.backend.memory.storage import VECTOR, Walk
from mrt.backend.schedule.cost import attributes_of_calls, expressions_of
from mrt.backend.schedule.loops import SPATIAL, extent, has_reduction, parallelize, split_loops
from mrt.backend.te.stages import Hint
from mrt.backend.tir.expressions import SEAL

CHOICE = "prim.if_then_else"
"""The name of what gives one of two values, and reads that one only."""
MOST_VECTORS = 5
"""Of sums of a reduction that are in registers at once: those of int32 fill ten of AVX2's sixteen."""
WHOLE_VECTORS = "mrt.whole_vectors"
"""The attribute of operators with instructions for vectors that LLVM would not find: of how many lanes at least."""
LEAST_PART, LEAST_PIECE = 4, 16
"""Channels that are worth vectors of their own, and elements of a row that are worth a loop of their own, where they
come from one tensor and others from another."""
MOST_CUTS = 2
"""Places at which a row is cut: where the border of an image ends, and where it begins again."""
LONG_PART = 1 << 15
"""Elements of a single row that a thread does at a time."""


def schedule_stage(plan: Any, block: Any) -> None:
    """One that the schedules of outputs know nothing of."""
    if has_reduction(plan, block):
        _schedule_reduction(plan, block)
    else:
        schedule_map(plan, block, 1)


def schedule_lanes(plan: Any, block: Any, walk: Walk) -> None:
    """Neighbours in memory, channels mostly, are vectorized; a vector of them is done for a whole row of positions.

    What is the same for all positions, as weights and scales by channel are, stays in registers along the row.
    """
    *positions, channel = plan.get_loops(block)
    length = extent(plan, channel)
    if len(positions) == 1 and len(walk.positions) > 1:
        positions = list(plan.split(positions[0], [None, walk.positions[-1]]))
    if walk.turns > 1 and length % walk.turns == 0:
        # What is read of each tensor follows each other: LLVM makes vectors of it, and puts them together.
        _, turn = plan.split(channel, [None, walk.turns])
        plan.unroll(turn)
        parallelize(plan, positions)
        return
    if length < VECTOR:
        # So few channels are those of an image, plane after plane: LLVM puts vectors of neighbours in each together.
        *rows, row = positions
        cuts = _cuts(plan.get(block), extent(plan, row)) if rows and _may_be_copied(plan, row, block) else []
        plan.unroll(channel)
        parallelize(plan, rows or [row])
        if 0 < len(cuts) <= MOST_CUTS:
            plan.loop_partition(row, [end - start for start, end in pairwise([0, *cuts])])
        return
    vectors = []
    limits = _limits(plan.get(block))
    width = math.gcd(_vector(plan, block), *limits)
    if limits and width < VECTOR and _only_chooses(plan.get(block)) and _may_be_copied(plan, channel, block):
        # LLVM copies the channels of each tensor as one piece of memory.
        parallelize(plan, positions)
        plan.loop_partition(channel, [end - start for start, end in pairwise([0, *limits])])
        return
    if length % width or width < LEAST_PART:
        width = VECTOR
    if length % width == 0:
        vector, channel = plan.split(channel, [None, width])
        vectors = [vector]
    *rows, row = positions
    if vectors or length <= 2 * VECTOR:
        plan.vectorize(channel)
    plan.reorder(*rows, *vectors, row, channel)
    parallelize(plan, [*rows, *vectors] or [row])


def _vector(plan: Any, block: Any) -> int:
    """Elements of a vector: as many more as those that are read and written are narrower than 32 bits."""
    found = plan.get(block)
    sizes = [np.dtype(str(region.source.dtype)).itemsize for region in (*found.reads, *found.writes)]
    return VECTOR * max(4 // max(sizes), 1)


def schedule_map(plan: Any, block: Any, inner: int) -> None:
    loops = plan.get_loops(block)
    if not loops:
        return
    inner = max(1, min(inner, len(loops)))
    last = plan.fuse(*loops[-inner:]) if inner > 1 else loops[-1]
    outer = loops[:-inner]
    if not outer:
        part = _part(extent(plan, last))
        rest, last = plan.split(last, [None, part])
        outer = [rest]
    piece = math.gcd(*_limits(plan.get(block)), extent(plan, last))
    if LEAST_PIECE <= piece < extent(plan, last):
        # What is read is one tensor for all of a piece, which LLVM then makes vectors of.
        last = plan.split(last, [None, piece])[1]
    width = math.gcd(_vector(plan, block), extent(plan, last))
    if width >= _whole_vectors(plan.get(block)) > 0:
        # Of anything else LLVM makes vectors by itself.
        plan.vectorize(plan.split(last, [None, width])[1])
    parallelize(plan, outer)


def _cuts(block: Any, length: int) -> list[int]:
    """Where along a row of so many positions, the last axis but one or the end of it, what a Pad asks changes."""
    found = set[int]()
    for value in expressions_of(block):
        if isinstance(value, (tirx.LT, tirx.LE)):
            limits = [int(side) for side in (value.a, value.b) if isinstance(side, tirx.IntImm)]
            asked = [side for side in (value.a, value.b) if _is_in_row(side, block.iter_vars[-2].var, length)]
            if limits and asked:
                # c <= x and x < c both change at c, the others behind it.
                found.add(limits[0] + (isinstance(value, tirx.LT) == isinstance(value.a, tirx.IntImm)))
    return sorted(cut for cut in found if 0 < cut < length)


def _only_chooses(block: Any) -> bool:
    """Whether a block calls nothing but a choice between what it reads, which it may take for another type."""
    return all(value.op.name in (CHOICE, SEAL) for value in expressions_of(block) if isinstance(value, ir.Call))


def _may_be_copied(plan: Any, loop: Any, block: Any) -> bool:
    """Whether TVM can make several loops of one.

    Of one with several blocks its `loop_partition` ends the process, and variables that are bound in expressions it
    copies without new names, which its analyzer refuses.
    """
    binds = any(isinstance(value, tirx.Let) for value in expressions_of(plan.get(block)))
    return len(plan.get_child_blocks(loop)) == 1 and not binds


def _is_in_row(value: Any, last: Any, length: int) -> bool:
    """Whether a value is the place of a position in its row."""
    if not isinstance(value, ir.Call) or value.op.name != SEAL:
        return False
    (place,) = value.args
    is_flat = isinstance(place, tirx.FloorMod) and place.a.same_as(last) and int(place.b) == length
    return is_flat or bool(place.same_as(last))


def _limits(block: Any) -> list[int]:
    """What a block compares its last axis with, as a Concat does, in order."""
    last = block.iter_vars[-1].var
    compared = (value for value in expressions_of(block) if isinstance(value, tirx.LT) and value.a.same_as(last))
    return sorted({int(value.b) for value in compared if isinstance(value.b, tirx.IntImm)})


def _whole_vectors(block: Any) -> int:
    """The most lanes that operators of a block need to be done by vectors, of those with WHOLE_VECTORS; or 0."""
    return max(map(int, attributes_of_calls(WHOLE_VECTORS, block)), default=0)


def _part(count: int) -> int:
    """A divisor of `count`, large enough to be worth a thread where there is one."""
    divisors = [n for n in range(1, min(count, LONG_PART) + 1) if count % n == 0]
    return divisors[-1]


def _schedule_reduction(plan: Any, block: Any) -> None:
    """Sums run along the last spatial axis, so that they are independent; one that is short is left outside."""
    spatial, reduction = split_loops(plan, block)
    inner = plan.get(block).annotations.get(Hint.INNER)
    if inner is not None:
        spatial.append(spatial.pop(int(inner)))
        plan.reorder(*spatial)
    if len(spatial) > 1 and extent(plan, spatial[-1]) >= 4:
        outer, row, width = spatial[:-1], spatial[-1], _vector(plan, block)
        vectors = _vectors_at_once(extent(plan, row), width) if _reads_rows(plan.get(block), inner) else 0
        parts = []
        held = [row]
        if vectors:
            # Registers hold these sums. A loop over those of a whole row LLVM would unroll, and compile for long.
            part, *held = plan.split(row, [None, vectors, width])
            parts = [part]
            plan.unroll(held[0])
            plan.vectorize(held[1])
        plan.reorder(*outer, *parts, *reduction, *held)
        parallelize(plan, outer)
        plan.decompose_reduction(block, reduction[0])
    elif spatial:
        parallelize(plan, spatial)


def _vectors_at_once(length: int, width: int) -> int:
    """How many vectors of `width` are summed at once, of a row that groups of them make up; 0 of any other."""
    return max((n for n in range(1, MOST_VECTORS + 1) if length % (n * width) == 0), default=0)


def _reads_rows(block: Any, inner: Any) -> bool:
    """Whether what follows each other in a row that is summed does so in all tensors that are read, or is the same.

    inner: the place of the row among the block's spatial axes, None for the last.
    """
    spatial = [each.var for each in block.iter_vars if int(each.iter_type) == SPATIAL]
    row = spatial[-1 if inner is None else int(inner)]
    indices = [_without_units([at.min for at in read.region], read.source.shape) for read in block.reads]
    return all(
        not any(_depends(at, row) for at in outer) and (last.same_as(row) or not _depends(last, row))
        for *outer, last in indices
    )


def _without_units(index: list[Any], shape: Sequence[Any]) -> list[Any]:
    """An index but for the places in the last axes of one element each."""
    kept = len(index)
    while kept > 1 and int(shape[kept - 1]) == 1:
        kept -= 1
    return index[:kept]


def _depends(value: Any, variable: Any) -> bool:
    return any(used.same_as(variable) for used in tirx.analysis.undefined_vars(value))
