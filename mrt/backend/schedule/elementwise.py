"""Schedules of maps, one element from some others, and of reductions, as parallel and vectorized loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from mrt.backend.memory.storage import VECTOR, Walk
from mrt.backend.schedule.loops import extent, has_reduction, parallelize, split_loops
from mrt.backend.te.stages import Hint

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
        plan.unroll(channel)
        parallelize(plan, rows or [row])
        return
    vectors = []
    width = _vector(plan, block) if length % _vector(plan, block) == 0 else VECTOR
    if length % width == 0:
        vector, channel = plan.split(channel, [None, width])
        vectors = [vector]
    *rows, row = positions
    if length <= 2 * VECTOR or length % VECTOR == 0:
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
    parallelize(plan, outer)


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
        outer, row = spatial[:-1], spatial[-1]
        plan.reorder(*outer, *reduction, row)
        parallelize(plan, outer)
        plan.decompose_reduction(block, reduction[0])
    elif spatial:
        parallelize(plan, spatial)
