"""Schedules: how the stages of a region become parallel, vectorized loops.

Maps (one element from some others) and reductions are scheduled here; sums of dots, columns, rows and tiles by their
kernels. No form changes the order in which one element's terms are added, so that results depend on neither threads nor
tiles.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import s_tir

from mrt.backend.kernels.generic.accumulator_init import begin_sums
from mrt.backend.kernels.generic.batch_dot import schedule_matrix_products
from mrt.backend.kernels.generic.dot_schedule import overlap_pairs, schedule_dots
from mrt.backend.kernels.generic.prefetch import fetch_ahead
from mrt.backend.kernels.generic.rows import combine_lanes, schedule_rows
from mrt.backend.kernels.generic.unroll_and_jam import jam_tiles
from mrt.backend.kernels.x86.amx.instructions import write_tiles
from mrt.backend.kernels.x86.amx.tiles import tile_dots
from mrt.backend.kernels.x86.avx512.packed_store import write_narrowed
from mrt.backend.kernels.x86.vnni.depthwise import schedule_columns, write_columns
from mrt.backend.machine import Machine
from mrt.backend.memory.storage import VECTOR, Walk
from mrt.backend.schedule.loops import extent, has_reduction, parallelize, split_loops
from mrt.backend.schedule.tilings import Choose, by_rule
from mrt.backend.te.stages import Hint

LONG_PART = 1 << 15
"""Elements of a single row that a thread does at a time."""


def schedule(
    function: Any,
    walk: Walk,
    outputs: int,
    walked: int,
    machine: Machine,
    choose: Choose = by_rule,
    by_rows: bool = False,
    once: bool = False,
) -> Any:
    """The scheduled form of the PrimFunc of a region, whose last blocks, one for each output, share their loops.

    walked: how many trailing axes of the output can be walked as one without an index division. choose: see `tilings`.
    by_rows: whether every step is one along rows. once: whether each element must be computed once only.
    """
    if machine.has_tiles and not by_rows and (tiled := _by_tiles(function, outputs, machine, choose)) is not None:
        return tiled
    plan = s_tir.Schedule(begin_sums(function))
    blocks = plan.get_child_blocks(plan.get_sblock("root"))
    inside, output = blocks[:-outputs], blocks[-1]
    if by_rows:
        schedule_rows(plan, inside, output)
        return combine_lanes(plan.mod["main"])
    dots, total = None, None
    matrices: list[Any] = []
    for block in inside:
        annotations = plan.get(block).annotations
        if Hint.DOT in annotations:
            dots = block
        elif Hint.COLUMNS in annotations:
            schedule_columns(plan, block, output, machine)
            return write_narrowed(write_columns(plan.mod["main"]))
        elif Hint.SLICES in annotations:
            total = block
        elif Hint.WHOLE in annotations:
            plan.compute_inline(block)
        elif Hint.MATRIX in annotations:
            matrices.append(block)
        else:
            _schedule_stage(plan, block)
    if matrices:
        schedule_matrix_products(plan, matrices, dots, output, machine, choose)
    elif dots is not None:
        schedule_dots(plan, dots, output, machine, choose=choose, total=total)
        made = jam_tiles(fetch_ahead(plan.mod["main"]))
        return write_narrowed(made if once else overlap_pairs(made))
    elif walk.inner is not None:
        _schedule_lanes(plan, output, walk)
    else:
        _schedule_map(plan, output, walked)
    return plan.mod["main"]


def _by_tiles(function: Any, outputs: int, machine: Machine, choose: Choose) -> Any:
    """The scheduled form of a function whose dots tiles multiply, which begin with 0; None where they do not."""
    plan = s_tir.Schedule(function)
    blocks = plan.get_child_blocks(plan.get_sblock("root"))
    inside, output = blocks[:-outputs], blocks[-1]
    hints = [plan.get(block).annotations for block in inside]
    dots = [block for block, hint in zip(inside, hints, strict=True) if Hint.DOT in hint]
    if len(dots) != 1 or any(Hint.SLICES in hint or Hint.MATRIX in hint for hint in hints):
        return None
    if not plan.get_consumers(dots[0]):
        return None  # Bounds prove what is made of the sums to be constant.
    whole = None
    for block, hint in zip(inside, hints, strict=True):
        if Hint.BEGUN in hint:
            plan.compute_inline(block)
        elif Hint.WHOLE in hint:
            whole = block
        elif Hint.DOT not in hint:
            _schedule_stage(plan, block)
    return write_tiles(plan.mod["main"]) if tile_dots(plan, dots[0], output, machine, choose, whole) else None


def _schedule_stage(plan: Any, block: Any) -> None:
    """One that the schedules of outputs know nothing of."""
    if has_reduction(plan, block):
        _schedule_reduction(plan, block)
    else:
        _schedule_map(plan, block, 1)


def _schedule_lanes(plan: Any, block: Any, walk: Walk) -> None:
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


def _schedule_map(plan: Any, block: Any, inner: int) -> None:
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
