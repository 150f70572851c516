"""Schedules: how the stages of a region become parallel, vectorized loops.

Three forms serve everything: maps (one element from some others), reductions, and blocked accumulations. No form
changes the order in which one element's terms are added, so that results depend on neither threads nor tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir

from mrt.backend.kernels.dot import schedule_dots
from mrt.backend.loops import PARALLEL_FROM, extent, has_reduction, parallelize, product, register_tile, split_loops
from mrt.backend.machine import Machine
from mrt.backend.stages import Hint
from mrt.backend.storage import VECTOR, Walk


@dataclass(frozen=True)
class Accumulation:
    """What the output stage must know of the blocked accumulation that it reads; see `Hint` for the first two."""

    channel_axis: int
    whole_blocks: bool
    lanes: int


def schedule(function: Any, walk: Walk, outputs: int, walked: int, machine: Machine) -> Any:
    """The scheduled form of the PrimFunc of a region, whose last blocks, one for each output, share their loops.

    walked: how many trailing axes of the output can be walked as one without an index division.
    """
    plan = s_tir.Schedule(function)
    blocks = plan.get_child_blocks(plan.get_sblock("root"))
    inside, output = blocks[:-outputs], blocks[-1]
    accumulation, dots = None, None
    for block in inside:
        annotations = plan.get(block).annotations
        if Hint.DOT in annotations:
            dots = block
        elif Hint.BLOCK_AXIS in annotations:
            accumulation = _schedule_accumulation(plan, block, machine)
        elif has_reduction(plan, block):
            _schedule_reduction(plan, block)
        else:
            _schedule_map(plan, block, 1)
    if dots is not None:
        schedule_dots(plan, dots, output, machine)
    elif accumulation is not None and walk.inner is None:
        _schedule_unblocking(plan, output, accumulation)
    elif walk.inner is not None:
        _schedule_lanes(plan, output, walk)
    else:
        _schedule_map(plan, output, walked)
    return plan.mod["main"]


def _schedule_lanes(plan: Any, block: Any, walk: Walk) -> None:
    """Neighbours in memory, channels mostly, are vectorized; a vector of them is done for a whole row of positions.

    What is the same for all positions, as weights and scales by channel are, stays in registers along the row.
    """
    *positions, channel = plan.get_loops(block)
    length = extent(plan, channel)
    if len(positions) == 1 and len(walk.positions) > 1:
        positions = list(plan.split(positions[0], [None, walk.positions[-1]]))
    vectors = []
    if length % VECTOR == 0:
        vector, channel = plan.split(channel, [None, VECTOR])
        vectors = [vector]
    *rows, row = positions
    if length <= 2 * VECTOR or length % VECTOR == 0:
        plan.vectorize(channel)
    plan.reorder(*rows, *vectors, row, channel)
    outer = [*rows, *vectors] or [row]
    parallelize(plan, outer, length * extent(plan, row))


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
    parallelize(plan, outer, extent(plan, last))


def _part(count: int) -> int:
    """A divisor of `count`, large enough to be worth a thread where there is one."""
    divisors = [n for n in range(1, min(count, PARALLEL_FROM) + 1) if count % n == 0]
    return divisors[-1]


def _schedule_reduction(plan: Any, block: Any) -> None:
    """Sums run along the last spatial axis, so that they are independent; one that is short is left outside."""
    spatial, reduction = split_loops(plan, block)
    work = product(plan, reduction)
    inner = plan.get(block).annotations.get(Hint.INNER)
    if inner is not None:
        spatial.append(spatial.pop(int(inner)))
        plan.reorder(*spatial)
    if len(spatial) > 1 and extent(plan, spatial[-1]) >= 4:
        outer, row = spatial[:-1], spatial[-1]
        plan.reorder(*outer, *reduction, row)
        parallelize(plan, outer, work * extent(plan, row))
        plan.decompose_reduction(block, reduction[0])
    elif spatial:
        parallelize(plan, spatial, work)


def _schedule_accumulation(plan: Any, block: Any, machine: Machine) -> Accumulation:
    """Tiles of positions x blocks stay in registers while the reduction runs; lanes are vectorized."""
    annotations = plan.get(block).annotations
    axis = int(annotations[Hint.BLOCK_AXIS])
    spatial, reduction = split_loops(plan, block)
    *_, position, lane = spatial
    lanes = extent(plan, lane)
    vector = min(lanes, machine.vector_bits // 32)
    tile, together = register_tile(extent(plan, position), int(annotations[Hint.GROUP_BLOCKS]), vector, machine)
    work = product(plan, reduction) * extent(plan, position) * together * lanes
    blocks, near_blocks = plan.split(spatial[axis], [None, together])
    tiles, near_positions = plan.split(position, [None, tile])
    vectors, lane = plan.split(lane, [None, vector])
    outer = [*spatial[:axis], blocks, *spatial[axis + 1 : -2]]
    plan.reorder(*outer, tiles, vectors, *reduction, near_positions, near_blocks, lane)
    plan.vectorize(lane)
    plan.unroll(near_positions)
    plan.unroll(near_blocks)
    store = plan.cache_write(block, 0, "global")
    plan.reverse_compute_at(store, vectors, preserve_unit_loops=True)
    *near, store_lane = plan.get_loops(store)[len(outer) + 2 :]
    plan.vectorize(store_lane)
    for loop in near:
        plan.unroll(loop)
    if product(plan, outer) < 2 * machine.threads:
        outer.append(tiles)
        work //= extent(plan, tiles)
    parallelize(plan, outer, work)
    plan.decompose_reduction(block, reduction[0])
    return Accumulation(
        channel_axis=int(annotations[Hint.CHANNEL_AXIS]),
        whole_blocks=bool(annotations[Hint.WHOLE_BLOCKS]),
        lanes=lanes,
    )


def _schedule_unblocking(plan: Any, block: Any, accumulation: Accumulation) -> None:
    """The output stage takes whole lanes and spreads them over the channel axis."""
    loops = list(plan.get_loops(block))
    axis = accumulation.channel_axis
    before, channel, positions = loops[:axis], loops[axis], loops[axis + 1 :]
    if not accumulation.whole_blocks:
        outer, last = [*before, channel, *positions][:-1], [*before, channel, *positions][-1]
        parallelize(plan, outer, extent(plan, last))
        return
    blocks, lane = plan.split(channel, [None, accumulation.lanes])
    outer, near = [*before, blocks, *positions[:-1]], positions[-1:]
    plan.reorder(*outer, *near, lane)
    plan.vectorize(lane)
    parallelize(plan, outer, product(plan, near) * accumulation.lanes)
