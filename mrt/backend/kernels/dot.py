"""Sums of dots: what convolutions and matrix products have in common, and how their loops are formed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from mrt.backend.expressions import Expression, ravel, unravel
from mrt.backend.kernels.instructions import Dot, choose_dot
from mrt.backend.loops import extent, parallelize, product, register_tile, split_loops
from mrt.backend.machine import Machine
from mrt.backend.packing import Operand, Packed, Surroundings
from mrt.backend.stages import Hint, stage
from mrt.backend.storage import Storage, View
from mrt.symbol import Array
from mrt.symbol.types import type_of

NEAR_BYTES = 1 << 14
"""Of the data that is walked again for each block of output channels: half of a small first cache."""


@dataclass(frozen=True)
class DotForm:
    """How a weight lies in memory, and how its dots are walked.

    flat: all positions are one axis; groups: of channels, whose blocks of output channels follow each other.
    """

    dot: Dot
    flat: bool
    groups: int


def pack_dot(
    weight: Array, data: View, accumulator: str, surroundings: Surroundings, pointwise: bool, groups: int = 1
) -> Packed | None:
    """The weight (O, I, taps...) of dots over the data's innermost axis, as [block, taps..., I / depth, lane, depth].

    A block is `lanes` output channels. None where groups of channels do not fill lanes and dots, or the data does not
    lie in memory as any dot reads it.
    Where memory holds more than the data's values, the second array takes it off again for each output channel.
    """
    source = data.flattened or data
    if source.storage is None:
        return None
    dot = choose_dot(source.dtype, weight, accumulator, surroundings.machine)
    storage = source.storage
    flat = pointwise and storage.is_flat and surroundings.walk.flat
    if (storage.dtype, storage.offset) != (dot.data, dot.offset):
        if storage.offset:
            return None
        dot = Dot(storage.dtype, 0, weight.dtype.name, 1, dot.lanes, accumulator)
    outputs, inputs, *taps = weight.shape
    per_group = outputs // groups
    depth = storage.length if groups == 1 else inputs
    if depth % dot.depth or (groups > 1 and (per_group % dot.lanes or outputs != surroundings.walk.storage.length)):
        return None
    blocks = (per_group if groups > 1 else surroundings.walk.storage.length) // dot.lanes
    rows = np.zeros((groups, blocks * dot.lanes, depth, *taps), dot.weight)
    rows[:, :per_group, :inputs] = weight.reshape(groups, per_group, inputs, *taps)
    rows = rows.reshape(groups * blocks, dot.lanes, depth // dot.depth, dot.depth, *taps)
    packed = np.ascontiguousarray(np.moveaxis(rows, (1, 2, 3), (-2, -3, -1)))
    arrays = [packed]
    if dot.offset:
        arrays.append(-dot.offset * packed.astype(np.int32).sum(axis=(*range(1, packed.ndim - 2), packed.ndim - 1)))
    return Packed(DotForm(dot, flat, groups), tuple(arrays), tuple(Storage.plain(type_of(array)) for array in arrays))


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
) -> Callable[..., Expression]:
    """A function of (output channel, position...) that gives the sum over taps and input channels.

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

    walked = (math.prod(positions),) if form.flat else tuple(positions)
    sums = stage(
        (*walked, groups * blocks, dot.lanes),
        dots,
        "dots",
        dot=dot.intrinsic if within else "",
        group_blocks=blocks,
    )

    def element(channel: Expression, *position: Expression) -> Expression:
        # Where there are several groups, the channels of each fill whole blocks.
        block, lane = tirx.floordiv(channel, dot.lanes), tirx.floormod(channel, dot.lanes)
        at = [ravel(position, tuple(positions))] if form.flat else position
        value = sums(*at, block, lane)
        return value + weight.views[1](block, lane) if dot.offset else value

    return element


def schedule_dots(plan: Any, sums: Any, output: Any, machine: Machine) -> None:
    """Tiles of positions and blocks of output channels stay in registers while all their dots are summed.

    The output's loops are [positions..., channel]; the sums' are [positions..., block, lane, taps..., step, within].
    What is larger, the weights or the data, is walked once, and the other again for each part of it.
    """
    annotations = plan.get(sums).annotations
    intrinsic = str(annotations[Hint.DOT])
    *positions, channel = plan.get_loops(output)
    spatial, reduction = split_loops(plan, sums)
    lanes, blocks_count = extent(plan, spatial[-1]), extent(plan, spatial[-2])
    depth = product(plan, reduction)
    if len(positions) == 1 and len(spatial) > 3:
        positions = list(plan.split(positions[0], [None, extent(plan, spatial[-3])]))
    row = positions[-1] if positions else plan.add_unit_loop(channel)
    rows = positions[:-1]
    tile, together = register_tile(extent(plan, row), int(annotations[Hint.GROUP_BLOCKS]), lanes, machine)
    near = _near_tiles(extent(plan, row) // tile, tile * depth) if not rows else extent(plan, row) // tile
    blocks, lane = plan.split(channel, [None, lanes])
    far_blocks, near_blocks = plan.split(blocks, [None, together])
    parts, tiles, near_positions = plan.split(row, [None, near, tile])
    weights, data = blocks_count * lanes * depth, product(plan, rows) * extent(plan, parts) * near * tile * depth
    by_blocks = weights * product(plan, [*rows, parts]) > data * extent(plan, far_blocks)
    outer = [far_blocks, *rows, parts] if by_blocks else [*rows, parts, far_blocks]
    plan.reorder(*outer, tiles, near_positions, near_blocks, lane)
    plan.compute_at(sums, tiles, preserve_unit_loops=True)
    inside = list(plan.get_loops(sums))[len(outer) + 1 :]
    place = len(inside)
    steps, at = inside[len(inside) - len(reduction) :], inside[: len(inside) - len(reduction)]
    *near_at, lane_at = at
    if intrinsic:
        plan.reorder(*steps[:-1], *near_at, lane_at, steps[-1])
    else:
        plan.reorder(*steps, *near_at, lane_at)
        plan.vectorize(lane_at)
    for loop in near_at:
        plan.unroll(loop)
    # Threads are told apart before the sums are started in a block of their own, after which TVM refuses.
    parallelize(plan, outer, depth * tile * together * lanes * near)
    first = plan.decompose_reduction(sums, steps[0])
    *zeroed, zeroed_lane = list(plan.get_loops(first))[-(place - len(reduction)) :]
    plan.vectorize(zeroed_lane)
    for loop in zeroed:
        plan.unroll(loop)
    if intrinsic:
        plan.tensorize(lane_at, intrinsic)
    plan.vectorize(lane)
    plan.unroll(near_positions)
    plan.unroll(near_blocks)


def _near_tiles(tiles: int, tile_bytes: int) -> int:
    """How many tiles in a row are done for one block of output channels before the next."""
    return max(n for n in range(1, tiles + 1) if tiles % n == 0 and (n == 1 or n * tile_bytes <= NEAR_BYTES))
