"""Sums of dots: what convolutions and matrix products have in common, and how their loops are formed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import s_tir, te, tirx

from mrt.backend.expressions import Expression, Tensor, constant, ravel, substitute, unravel
from mrt.backend.kernels.begun import begun_sums
from mrt.backend.kernels.instructions import Dot, choose_dot, joined_bytes, weight_bytes
from mrt.backend.kernels.prefetch import Fetches
from mrt.backend.kernels.written import replace_loops, sequence
from mrt.backend.loops import NEAR_BYTES, extent, leave_first_cache, parallelize, product, register_tile, split_loops
from mrt.backend.machine import Machine
from mrt.backend.packing import Operand, Packed, Surroundings
from mrt.backend.stages import Hint, stage
from mrt.backend.storage import Storage, View
from mrt.backend.tilings import Choose, VectorTiling, by_rule
from mrt.symbol import Array
from mrt.symbol.types import type_of

PAIR = 2
"""Blocks of output channels whose sums are read as one vector, since their words fill one."""

SHORT_ROW = 64
"""Positions of a row of which few tiles are made, so that the last one may be shorter, and of a map whose lines are
one row."""
AHEAD = 32
"""Steps after which weights are needed that are fetched into the first cache: as long as the third one takes."""
FEW_STEPS = 512
"""Of a sum, up to which it counts that memory is waited for where it is written."""


@dataclass(frozen=True)
class DotForm:
    """How a weight lies in memory, and how its dots are walked.

    flat: all positions are one axis; line: how many of them follow each other in the data, if not all. groups: of
    channels, whose blocks of output channels follow each other. joins: whether sums may be formed for what lies between
    two lines of positions, too.
    """

    dot: Dot
    flat: bool
    groups: int
    joins: bool = field(default=False, kw_only=True)
    line: int | None = field(default=None, kw_only=True)


def pack_dot(
    weight: Array, data: View, accumulator: str, surroundings: Surroundings, pointwise: bool, groups: int = 1
) -> Packed | None:
    """The weight (O, I, taps...) of dots over the data's innermost axis, as [block, taps..., I / depth, lane, depth].

    A block is `lanes` output channels, or, of weights of several bytes, one byte of each; the bytes follow each other.
    None where groups of channels do not fill lanes and dots, or the data does not lie in memory as any dot reads it.
    Where memory holds more than the data's values, the second array takes it off again for each output channel.
    """
    source = data.flattened or data
    if source.storage is None:
        return None
    dot = choose_dot(source.dtype, weight, accumulator, surroundings.machine)
    storage = source.storage
    is_run, positions = pointwise and storage.is_one_run, surroundings.walk.positions
    if (storage.dtype, storage.offset) != (dot.data, dot.offset):
        if storage.offset:
            return None
        dot = Dot(storage.dtype, 0, weight.dtype.name, 1, dot.lanes, accumulator)
    flat = surroundings.walk.flat and (is_run or (not dot.instruction and math.prod(positions) <= SHORT_ROW))
    outputs, inputs, *taps = weight.shape
    per_group = outputs // groups
    depth = storage.depth if groups == 1 else inputs
    if depth % dot.depth or (groups > 1 and (per_group % dot.lanes or outputs != surroundings.walk.storage.length)):
        return None
    blocks = (per_group if groups > 1 else surroundings.walk.storage.length) // dot.lanes
    rows = weight.reshape(groups, per_group, inputs, *taps)
    rows = rows.astype(dot.weight if dot.parts == 1 else weight.dtype, copy=False)
    missing = blocks * dot.lanes - per_group, depth - inputs
    if any(missing):
        rows = np.pad(rows, [(0, 0), *((0, length) for length in missing), *((0, 0) for _ in taps)])
    rows = rows.reshape(groups * blocks, dot.lanes, depth // dot.depth, dot.depth, *taps)
    if dot.parts > 1:
        rows = np.moveaxis(weight_bytes(rows), 0, 1).reshape(-1, *rows.shape[1:])
    packed = np.moveaxis(rows, (1, 2, 3), (-2, -3, -1))
    arrays = [packed]
    if dot.offset:
        sums = packed.sum(axis=(*range(1, packed.ndim - 2), packed.ndim - 1), dtype=np.int32)
        arrays.append(-dot.offset * joined_bytes(sums.reshape(-1, dot.parts, dot.lanes).swapaxes(0, 1)))
    line = positions[-1] if flat and not is_run else None
    form = DotForm(dot, flat, groups, joins=surroundings.machine.has_tiles and groups == 1, line=line)
    return Packed(form, tuple(arrays), tuple(Storage.plain(type_of(array)) for array in arrays))


def pack_bias(bias: Array, surroundings: Surroundings) -> Packed | None:
    """A bias (O,) as long as the innermost axis of the result; what it pads is never read as a value."""
    if surroundings.walk.inner is None:
        return None
    storage = Storage.with_inner(type_of(bias), 0, surroundings.walk.storage.length)
    return Packed(None, (storage.lay(bias),), (storage,))


def dot_products(
    data: View,
    weight: Operand,
    positions: Sequence[int],
    taps: Sequence[int],
    places: Callable[[Sequence[Expression], Sequence[Expression]], list[Expression]],
    bias: Tensor | None = None,
) -> Callable[..., Expression]:
    """A function of (output channel, position...) that gives the sum over taps and input channels, plus a bias.

    places: of a position and a tap, the index of the data without its channel.
    """
    form: DotForm = weight.form
    dot, groups, packed = form.dot, form.groups, weight.views[0]
    storage, tensor = data.storage, data.tensor
    if storage is None or storage.inner is None:
        raise ValueError("dots read a tensor that has an innermost axis")
    inner = storage.inner
    blocks = packed.shape[0] // groups
    steps = packed.shape[-3]
    axes = [te.reduce_axis((0, n), f"tap{i}") for i, n in enumerate(taps)]
    step = te.reduce_axis((0, steps), "step")
    within = [te.reduce_axis((0, dot.depth), "within")] if dot.depth > 1 else []

    def dots(*at: Expression) -> Expression:
        *position, block, lane = at
        if form.flat:
            position = unravel(position[0], tuple(positions))
        near = within[0] if within else 0
        channel = step * dot.depth + near
        if groups > 1:
            channel = tirx.floordiv(block, blocks) * (steps * dot.depth) + channel
        index = places(position, axes)
        held = tensor(*storage.places([*index[:inner], channel, *index[inner:]]))
        factor = packed(block, *axes, step, lane, near)
        return te.sum(held.astype(dot.accumulator) * factor.astype(dot.accumulator), axis=[*axes, step, *within])

    walked = [math.prod(positions)] if form.flat else list(positions)
    if form.joins and len(walked) > 1:
        walked[-1] = max(walked[-1], _line_pitch(storage, inner, len(walked), lambda at: places(at, [0 for _ in taps])))
    sums = stage(
        (*walked, groups * blocks, dot.lanes),
        dots,
        "dots",
        dot=dot.intrinsic if within else "",
        group_blocks=blocks,
        parts=dot.parts,
        line=form.line,
    )
    begun = begun_sums(sums, dot, weight, bias) if dot.parts == 1 else None

    def element(channel: Expression, *position: Expression) -> Expression:
        # Where there are several groups, the channels of each fill whole blocks.
        block, lane = tirx.floordiv(channel, dot.lanes), tirx.floormod(channel, dot.lanes)
        at = [ravel(position, tuple(positions))] if form.flat else position
        if begun is not None:
            return begun(*at, block, lane)
        value = joined_bytes([sums(*at, block * dot.parts + part, lane) for part in range(dot.parts)])
        value = value + weight.views[1](block, lane) if dot.offset else value
        return value if bias is None else value + bias(channel).astype(dot.accumulator)

    return element


def _line_pitch(
    storage: Storage, inner: int, rank: int, places: Callable[[Sequence[Expression]], list[Expression]]
) -> int:
    """How many positions of the last axis lie in memory from one of the axis before to the next; 0 if no whole one."""

    def place(axis: int) -> int:
        index = places([constant(int(i == axis), "int32") for i in range(rank)])
        return int(ravel(storage.places([*index[:inner], constant(0, "int32"), *index[inner:]]), storage.shape))

    here, line, position = place(-1), place(rank - 2), place(rank - 1)
    return (line - here) // (position - here) if (line - here) % (position - here) == 0 else 0


def read_together(blocks: int, parts: int) -> int:
    """How many blocks of output channels, of so many, have sums that follow each other and are read as one vector."""
    return PAIR if blocks % PAIR == 0 and parts == 1 else 1


def schedule_dots(
    plan: Any,
    sums: Any,
    output: Any,
    machine: Machine,
    own: Sequence[Any] = (),
    choose: Choose = by_rule,
    total: Any = None,
) -> None:
    """Tiles of positions and blocks of output channels stay in registers while all their dots are summed.

    The output's loops are [positions..., channel]; the sums' are [positions..., block, lane, taps..., step, within].
    By the rule what is larger, the weights or the data, is walked once, and the other again for each part of it.
    own: the blocks that make what the first loop of positions has of its own, as weights are; it stays outermost.
    choose: see `tilings`.
    total: the block that adds up sums of slices, whose loops are [slice, positions..., block, lane, ...]: both stay in
    registers (see `sliced_dot`).
    """
    annotations = plan.get(sums).annotations
    intrinsic = str(annotations[Hint.DOT])
    *positions, channel = plan.get_loops(output)
    spatial, reduction = split_loops(plan, sums)
    lanes, blocks_count = extent(plan, spatial[-1]), extent(plan, spatial[-2])
    slices = 1 if total is None else extent(plan, spatial[0])
    depth = product(plan, reduction) * slices
    row = positions[-1] if positions else plan.add_unit_loop(channel)
    first_rows, rows = (positions[:1], positions[1:-1]) if own else ([], positions[:-1])
    parts = int(annotations[Hint.PARTS])
    copies = 1 if total is None else 2
    length, count, group_blocks = extent(plan, row), product(plan, rows), int(annotations[Hint.GROUP_BLOCKS])
    dots = depth // (extent(plan, reduction[-1]) if intrinsic else 1)
    is_plain = not intrinsic and not own and total is None
    line = int(annotations[Hint.LINE]) if Hint.LINE in annotations else None
    may_rest = is_plain and not rows and length <= SHORT_ROW
    tile, held = register_tile(length, group_blocks, dots, machine, parts, copies, line, may_rest)
    weights, data = blocks_count * lanes * depth, count * length * depth
    in_row = -(-length // tile)
    # Where the last tile is shorter, an outer loop has it made apart; an inner one would ask at each step.
    near = 1 if length % tile else _near_tiles(in_row, tile * depth) if not rows else in_row
    by_blocks = weights * count * in_row // near > data * (blocks_count // held)
    rule = VectorTiling(tile, held // parts, near, by_blocks)
    tiling = choose(rule.alternatives(length, group_blocks // parts, parts, dots, machine, copies))
    tile, together, near, held = tiling.positions, tiling.blocks, tiling.near, tiling.blocks * parts
    pair = read_together(together, parts) if intrinsic else 1
    blocks, lane = plan.split(channel, [None, pair * lanes])
    far_blocks, near_blocks = plan.split(blocks, [None, together // pair])
    stretches, tiles, near_positions = plan.split(row, [None, near, tile])
    by_blocks = tiling.weights_outermost
    outer = [*first_rows, *([far_blocks, *rows, stretches] if by_blocks else [*rows, stretches, far_blocks])]
    plan.reorder(*outer, tiles, near_positions, near_blocks, lane)
    around = [*outer, tiles]
    if total is not None:
        around.append(_scheduled_total(plan, total, around))
    plan.compute_at(sums, around[-1], preserve_unit_loops=True)
    for block in reversed(own):
        plan.compute_at(block, first_rows[0], preserve_unit_loops=True)
    inside = list(plan.get_loops(sums))[len(around) :]
    steps, at = inside[len(inside) - len(reduction) :], inside[: len(inside) - len(reduction)]
    *near_at, lane_at = at
    if intrinsic:
        plan.reorder(*steps[:-1], *near_at, lane_at, steps[-1])
    else:
        plan.reorder(*steps, *near_at, lane_at)
        plan.vectorize(lane_at)
    for loop in near_at:
        plan.unroll(loop)
    if intrinsic and pair == 1 and parts == 1 and together > PAIR and not own and total is None:
        plan.annotate(near_blocks, Hint.OVERLAPS, 1)
    walks_once = by_blocks and not own and total is None and together < blocks_count
    fetches = Fetches(
        held,
        tile,
        count * -(-length // tile) if walks_once else 0,
        AHEAD if is_plain and leave_first_cache(held, dots, machine) else 0,
        is_plain and extent(plan, steps[-1]) == dots <= FEW_STEPS,
    )
    fetches.annotate(plan, steps[-2] if intrinsic else steps[-1])
    # Threads are told apart before the sums are started in a block of their own, after which TVM refuses.
    work = depth * tile * held * lanes * near
    parallelize(plan, first_rows or outer, work * product(plan, outer[1:]) if own else work)
    if total is not None:
        _start(plan, total, around[-1], len(at) - 1)
    _start(plan, sums, steps[0], len(at))
    if intrinsic:
        plan.tensorize(lane_at, intrinsic)
    plan.vectorize(lane)
    plan.unroll(near_positions)
    plan.unroll(near_blocks)


def overlap_pairs(function: Any) -> Any:
    """The scheduled function that reads the sums of an odd number of blocks in pairs, too, the last of which overlaps
    the one before.
    """
    return replace_loops(function, Hint.OVERLAPS, _in_pairs)


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


def _scheduled_total(plan: Any, total: Any, around: Sequence[Any]) -> Any:
    """The loop over slices of the block that adds up their sums, computed within the loops `around`."""
    plan.compute_at(total, around[-1], preserve_unit_loops=True)
    *positions, lane, slices = list(plan.get_loops(total))[len(around) :]
    plan.reorder(slices, *positions, lane)
    for loop in positions:
        plan.unroll(loop)
    plan.vectorize(lane)
    return slices


def _start(plan: Any, block: Any, loop: Any, count: int) -> None:
    """Sets the sums of a block to 0 before `loop`, in registers: they are walked by so many loops."""
    *zeroed, lane = list(plan.get_loops(plan.decompose_reduction(block, loop)))[-count:]
    plan.vectorize(lane)
    for each in zeroed:
        plan.unroll(each)


def _near_tiles(tiles: int, tile_bytes: int) -> int:
    """How many tiles in a row are done for one block of output channels before the next."""
    return max(n for n in range(1, tiles + 1) if tiles % n == 0 and (n == 1 or n * tile_bytes <= NEAR_BYTES))
