"""Schedules: how the stages of a region become parallel, vectorized loops.

Three forms serve everything: maps (one element from some others), reductions, and blocked accumulations. No form
changes the order in which one element's terms are added, so that results depend on neither threads nor tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import s_tir, tirx

from mrt.backend.compute import Hint
from mrt.backend.machine import Machine

PARALLEL_FROM = 1 << 15
"""Elementary operations below which starting threads costs more than it gains."""
STACK_BYTES = 1024
"""TVM keeps a buffer on the stack only below this size; elsewhere accumulators would not stay in registers."""
MULTIPLY_ADD_LATENCY = 4.0
"""Cycles until a multiply-add's result can be added to."""
SPATIAL, REDUCTION = int(tirx.IterVar.DataPar), int(tirx.IterVar.CommReduce)
"""Kinds of a block's axes."""


@dataclass(frozen=True)
class Accumulation:
    """What the output stage must know of the blocked accumulation that it reads; see `Hint` for the first three."""

    channel_axis: int
    whole_blocks: bool
    flat: bool
    lanes: int
    tile: int


def schedule(function: Any, inner: int, machine: Machine) -> Any:
    """The scheduled form of the PrimFunc of a region.

    inner: how many trailing axes of the output can be walked as one without an index division.
    """
    plan = s_tir.Schedule(function)
    root = plan.get_sblock("root")
    blocks = plan.get_child_blocks(root)
    output = blocks[-1]
    for block in blocks[:-1]:
        if Hint.INLINE in plan.get(block).annotations:
            plan.compute_inline(block)
    accumulation = None
    for block in plan.get_child_blocks(root):
        is_output = plan.get(block).same_as(plan.get(output))
        annotations = plan.get(block).annotations
        if Hint.BLOCK_AXIS in annotations:
            accumulation = _schedule_accumulation(plan, block, machine)
        elif _has_reduction(plan, block):
            _schedule_reduction(plan, block)
        elif is_output and accumulation is not None:
            _schedule_unblocking(plan, block, accumulation)
        else:
            _schedule_map(plan, block, inner if is_output else 1)
    return plan.mod["main"]


def _schedule_map(plan: Any, block: Any, inner: int) -> None:
    loops = plan.get_loops(block)
    if not loops:
        return
    inner = max(1, min(inner, len(loops)))
    last = plan.fuse(*loops[-inner:]) if inner > 1 else loops[-1]
    outer = loops[:-inner]
    if not outer:
        part = _part(_extent(plan, last))
        rest, last = plan.split(last, [None, part])
        outer = [rest]
    _parallelize(plan, outer, _extent(plan, last))


def _part(count: int) -> int:
    """A divisor of `count`, large enough to be worth a thread where there is one."""
    divisors = [n for n in range(1, min(count, PARALLEL_FROM) + 1) if count % n == 0]
    return divisors[-1]


def _schedule_reduction(plan: Any, block: Any) -> None:
    """Sums run along the last spatial axis, so that they are independent; one that is short is left outside."""
    spatial, reduction = _split_loops(plan, block)
    work = _product(plan, reduction)
    if len(spatial) > 1 and _extent(plan, spatial[-1]) >= 4:
        outer, row = spatial[:-1], spatial[-1]
        plan.reorder(*outer, *reduction, row)
        _parallelize(plan, outer, work * _extent(plan, row))
        plan.decompose_reduction(block, reduction[0])
    elif spatial:
        _parallelize(plan, spatial, work)


def _schedule_accumulation(plan: Any, block: Any, machine: Machine) -> Accumulation:
    """Tiles of positions x blocks stay in registers while the reduction runs; lanes are vectorized."""
    annotations = plan.get(block).annotations
    axis = int(annotations[Hint.BLOCK_AXIS])
    spatial, reduction = _split_loops(plan, block)
    *_, position, lane = spatial
    lanes = _extent(plan, lane)
    vector = min(lanes, machine.vector_bits // 32)
    tile, together = _register_tile(_extent(plan, position), int(annotations[Hint.GROUP_BLOCKS]), vector, machine)
    work = _product(plan, reduction) * _extent(plan, position) * together * lanes
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
    if _product(plan, outer) < 2 * machine.threads:
        outer.append(tiles)
        work //= _extent(plan, tiles)
    _parallelize(plan, outer, work)
    plan.decompose_reduction(block, reduction[0])
    return Accumulation(
        channel_axis=int(annotations[Hint.CHANNEL_AXIS]),
        whole_blocks=bool(annotations[Hint.WHOLE_BLOCKS]),
        flat=bool(annotations[Hint.FLAT]),
        lanes=lanes,
        tile=tile,
    )


def _register_tile(positions: int, blocks: int, vector: int, machine: Machine) -> tuple[int, int]:
    """(positions, blocks) of a register tile, by the cycles that one reduction step costs for all positions.

    Two multiply-adds and two loads are done per cycle; a step loads each position's element and each block's weights.
    Accumulators, a step's weights and one element are in registers.
    """
    best, least = (1, 1), float("inf")
    for together in (n for n in range(1, 9) if blocks % n == 0):
        room = min((machine.registers - 1) // together - 1, (STACK_BYTES - 1) // (together * vector * 4))
        for tile in (n for n in range(1, room + 1) if positions % n == 0):
            cycles = max(tile * together / 2, (tile + together) / 2, MULTIPLY_ADD_LATENCY)
            cost = cycles * (positions // tile) / together
            if cost < least:
                best, least = (tile, together), cost
    return best


def _schedule_unblocking(plan: Any, block: Any, accumulation: Accumulation) -> None:
    """The output stage takes whole lanes and spreads them over the channel axis."""
    loops = list(plan.get_loops(block))
    axis = accumulation.channel_axis
    before, channel, positions = loops[:axis], loops[axis], loops[axis + 1 :]
    if accumulation.flat and len(positions) > 1:
        positions = [plan.fuse(*positions)]
    if not accumulation.whole_blocks:
        outer, last = [*before, channel, *positions][:-1], [*before, channel, *positions][-1]
        _parallelize(plan, outer, _extent(plan, last))
        return
    blocks, lane = plan.split(channel, [None, accumulation.lanes])
    if accumulation.flat and _extent(plan, positions[0]) % accumulation.tile == 0:
        positions = list(plan.split(positions[0], [None, accumulation.tile]))
    outer, near = [*before, blocks, *positions[:-1]], positions[-1:]
    plan.reorder(*outer, *near, lane)
    plan.vectorize(lane)
    _parallelize(plan, outer, _product(plan, near) * accumulation.lanes)


def _split_loops(plan: Any, block: Any) -> tuple[list[Any], list[Any]]:
    """The spatial and the reduction loops of a block that is not scheduled yet."""
    kinds = [int(variable.iter_type) for variable in plan.get(block).iter_vars]
    loops = list(plan.get_loops(block))
    return (
        [loop for loop, kind in zip(loops, kinds, strict=True) if kind == SPATIAL],
        [loop for loop, kind in zip(loops, kinds, strict=True) if kind == REDUCTION],
    )


def _has_reduction(plan: Any, block: Any) -> bool:
    return any(int(variable.iter_type) == REDUCTION for variable in plan.get(block).iter_vars)


def _parallelize(plan: Any, loops: list[Any], work: int) -> None:
    """Fuses `loops`, which stand outermost, and runs them in parallel if that pays; work: operations inside them."""
    count = _product(plan, loops)
    if not loops or count == 1 or count * work < PARALLEL_FROM:
        return
    plan.parallel(plan.fuse(*loops) if len(loops) > 1 else loops[0])


def _extent(plan: Any, loop: Any) -> int:
    return int(plan.get(loop).extent)


def _product(plan: Any, loops: list[Any]) -> int:
    count = 1
    for loop in loops:
        count *= _extent(plan, loop)
    return count
