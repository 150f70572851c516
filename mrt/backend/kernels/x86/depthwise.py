"""Depthwise convolutions by dots: one takes up to four taps of bytes, or two of int16, of a column of one channel.

Channels are in lanes. The elements of a column, one below the other, are put next to each other in each lane; a column
so made serves every position of a row whose window it is in, and of the line below, one dot each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from mrt.backend.kernels.dot_instructions import Dot, choose_dot
from mrt.backend.kernels.generic.accumulator_init import initialized_sums
from mrt.backend.kernels.generic.dot import DotForm
from mrt.backend.kernels.x86.avx2.joined_lookups import joins_look_ups
from mrt.backend.kernels.x86.avx512.packed_store import stores_packed
from mrt.backend.kernels.x86.depthwise_strip import COLUMN_DOTS, GROUP, Columns, Rows, has_groups, turned
from mrt.backend.kernels.x86.vnni import dots as vnni
from mrt.backend.machine import Machine
from mrt.backend.memory.storage import Storage, View
from mrt.backend.schedule.loops import WORKING, divisors, extent, in_registers, parallelize
from mrt.backend.te.operands import Operand, Packed, Surroundings
from mrt.backend.te.stages import Hint, stage
from mrt.backend.tir.expressions import Expression, Tensor
from mrt.symbol import Array
from mrt.symbol.types import type_of

STRIP = 14
"""Positions of a row whose sums are in registers at most."""
STRIP_OF_GROUP = 32
"""Vectors of sums of a strip of groups at most, as many as the stack keeps. They need not all be in registers: a sum is
stored as soon as it is complete."""
SHORT_LINE = 14
"""Positions of a line up to which all lines of a group follow each other, so that what serves the group is loaded once
for all of them."""
FEW_REGISTERS = 16
"""With no more of them weights are loaded again for each strip anyway, so that all channels of a strip follow each
other: a row of many channels would leave the first cache before the next few of them are read."""


@dataclass(frozen=True)
class ColumnForm(DotForm):
    """How a depthwise weight lies in memory. in_groups: whether blocks of whole groups are in the order of `turned`."""

    in_groups: bool = False


def column_dot(data: str, weight: Array, accumulator: str, machine: Machine) -> Dot | None:
    """The dot for a depthwise weight (channels, 1, rows, columns) and data of a dtype; None where there is none."""
    if weight.ndim != 4:
        return None
    dot = choose_dot(data, weight, accumulator, machine)
    return dot if dot.formed_by in COLUMN_DOTS and dot.parts == 1 else None


def pack_columns(
    weight: Array, data: View, accumulator: str, surroundings: Surroundings, stride: int, dilation: int
) -> Packed | None:
    """The weight (channels, 1, rows, columns) as [block, rows / depth, column, lane, depth].

    None if the data lies otherwise. Where bytes are stored, blocks of whole groups are in the order of `turned`. Where
    two lines are summed together that begin at different rows of a dot, the same follows as the lower one reads it.
    Where bytes are permuted one block more begins with their places. Where memory holds more than the data's values,
    the second array takes it off again for each channel.
    stride, dilation: along rows.
    """
    dot, storage = column_dot(data.dtype, weight, accumulator, surroundings.machine), data.storage
    if dot is None or storage is None or (storage.dtype, storage.offset) != (dot.data, dot.offset):
        return None
    if storage.depth != surroundings.walk.storage.length or storage.depth % dot.lanes:
        return None
    rows = Rows.of(weight.shape[2], stride, dilation, dot.depth)
    packed = _in_lanes(weight, storage.depth, dot, rows)
    laid = [packed]
    if rows.may_pair and rows.before:
        lower = np.pad(weight, [(0, 0), (0, 0), (rows.before, 0), (0, 0)])
        laid.append(_in_lanes(lower, storage.depth, dot, rows))
    both, stored = np.concatenate(laid, axis=1), np.dtype(surroundings.walk.storage.dtype)
    in_groups = has_groups(dot.lanes, dot.depth) and stored.itemsize == 1
    both = _in_groups(both) if in_groups else both
    arrays = [_with_places(both) if surroundings.machine.has(vnni.PERMUTES) else both]
    if dot.offset:
        arrays.append(-dot.offset * packed.sum(axis=(1, 2, 4), dtype=np.int32))
    laid_as = tuple(Storage.plain(type_of(array)) for array in arrays)
    return Packed(ColumnForm(dot, flat=False, groups=1, in_groups=in_groups), tuple(arrays), laid_as)


def _in_lanes(weight: Array, length: int, dot: Dot, rows: Rows) -> Array:
    """The weight as [block, dots of `rows`, column, lane, depth], of so many channels."""
    channels, _, count, columns = weight.shape
    laid = np.zeros((length, rows.dots() * dot.depth, columns), dot.weight)
    laid[:channels, :count] = weight[:, 0]
    return np.ascontiguousarray(laid.reshape(-1, dot.lanes, rows.dots(), dot.depth, columns).transpose(0, 2, 4, 1, 3))


def _in_groups(packed: Array) -> Array:
    """The blocks of whole groups in the order of `turned`."""
    blocks, dots, columns, lanes, depth = packed.shape
    whole = blocks // GROUP * GROUP
    parts = packed[:whole].reshape(-1, GROUP, dots, columns, GROUP, lanes // GROUP, depth)
    return np.concatenate([parts.swapaxes(1, 4).reshape(-1, *packed.shape[1:]), packed[whole:]])


def _with_places(packed: Array) -> Array:
    """One block more, which begins with where in rows that follow each other the bytes of each lane are."""
    *_, lanes, depth = packed.shape
    size = packed.dtype.itemsize
    lane, row, byte = np.indices((lanes, depth, size))
    held = ((row * lanes + lane) * size + byte).astype(np.int8).ravel()
    places = np.zeros((1, *packed.shape[1:]), packed.dtype)
    places.view(np.int8).reshape(-1)[: held.size] = held
    return np.concatenate([packed, places])


def column_sums(
    data: View,
    weight: Operand,
    positions: Sequence[int],
    kernel: Sequence[int],
    window: Callable[[Sequence[Expression], Sequence[Expression]], list[Expression]],
    bias: Tensor | None,
) -> Callable[..., Expression]:
    """A function of (channel, n, y, x) that gives the sum over the taps, plus a bias if there is one.

    window: of a position (y, x) and a tap, where in the data it is.
    """
    form: ColumnForm = weight.form
    dot, packed, storage = form.dot, weight.views[0], data.storage
    if storage is None:
        raise ValueError("columns are read from memory")
    taps, blocks = [te.reduce_axis((0, n), f"tap{i}") for i, n in enumerate(kernel)], storage.depth // dot.lanes

    def total(*at: Expression) -> Expression:
        n, *position, block, lane = at
        held = data.tensor(*storage.places([n, block * dot.lanes + lane, *window(position, taps)]))
        row, column = taps
        holder, place = _holder(block, lane, blocks) if form.in_groups else (block, lane)
        factor = packed(holder, tirx.floordiv(row, dot.depth), column, place, tirx.floormod(row, dot.depth))
        return te.sum(held.astype(dot.accumulator) * factor.astype(dot.accumulator), axis=taps)

    in_groups = form.in_groups or None
    sums = stage((*positions, blocks, dot.lanes), total, "columns", columns=dot.instruction, in_groups=in_groups)
    added = weight.views[1] if dot.offset else None
    initialized = initialized_sums(sums, dot, added, bias)

    def element(channel: Expression, *position: Expression) -> Expression:
        block, lane = tirx.floordiv(channel, dot.lanes), tirx.floormod(channel, dot.lanes)
        if initialized is not None:
            return initialized(*position, block, lane)
        value = sums(*position, block, lane)
        return value if bias is None else value + bias(channel).astype(dot.accumulator)

    return element


def _holder(block: Expression, lane: Expression, blocks: int) -> tuple[Expression, Expression]:
    """The block and the lane that hold the weights of a channel, of so many blocks in groups."""
    whole = blocks // GROUP * GROUP
    if not whole:
        return block, lane
    within, place = turned(tirx.floormod(block, GROUP), lane)
    holder = tirx.floordiv(block, GROUP) * GROUP + within
    if whole == blocks:
        return holder, place
    return tirx.Select(block < whole, holder, block), tirx.Select(block < whole, place, lane)


def schedule_columns(plan: Any, sums: Any, output: Any, machine: Machine) -> None:
    """A strip of one or two lines of positions at a time of one vector of channels; `DepthwiseDots` writes its sums.

    Where bytes are stored, of as many vectors as their bytes fill one; `ColumnGroups` writes these strips.
    """
    *outer, line, row, channel = plan.get_loops(output)
    columns = Columns(plan.get(sums))
    blocks, lane = plan.split(channel, [None, columns.lengths[4]])
    lengths = extent(plan, line), extent(plan, row)
    at_once = _at_once(extent(plan, blocks), lengths[1]) if columns.in_groups and stores_packed(plan, lane) else 1
    together, strip = _strip_of(columns, *lengths, _most_positions(machine, at_once))
    lines, inner_lines = plan.split(line, [None, together])
    strips, inner = plan.split(row, [None, strip])
    if at_once > 1:
        groups, blocks = plan.split(blocks, [None, GROUP])
        around = [groups, lines] if lengths[1] <= SHORT_LINE else [lines, groups]
        plan.reorder(*outer, *around, strips, inner_lines, inner, blocks, lane)
        plan.compute_at(sums, strips, preserve_unit_loops=True)
        parallelize(plan, [*outer, *around])
        plan.annotate(strips, Hint.COLUMN_GROUPS, 1)
        return
    around = [lines, strips, blocks] if machine.registers <= FEW_REGISTERS else [lines, blocks, strips]
    plan.reorder(*outer, *around, inner_lines, inner, lane)
    plan.compute_at(sums, around[-1], preserve_unit_loops=True)
    parallelize(plan, [*outer, *around[:-1]])
    if stores_packed(plan, lane):
        plan.annotate(inner_lines, Hint.PACKED_STORE, 0)
        return
    if joins_look_ups(plan, lane):
        plan.annotate(inner_lines, Hint.JOINED_LOOK_UPS, 1)
    in_registers(plan, [inner_lines, inner, lane])


def _at_once(blocks: int, positions: int) -> int:
    """How many blocks are summed at once: a group, a half of one at two positions, or one."""
    if blocks >= GROUP:
        return GROUP
    return blocks if blocks == GROUP // 2 and positions % 2 == 0 else 1


def _most_positions(machine: Machine, at_once: int) -> int:
    """Of a strip of one line, whose sums are of so many blocks at once."""
    return min(STRIP, machine.registers - WORKING) if at_once == 1 else STRIP_OF_GROUP // at_once


def _strip_of(columns: Columns, lines: int, positions: int, most: int) -> tuple[int, int]:
    """The lines and the positions of each that are summed together: those for which fewest columns are made.

    most: positions of one line.
    """
    rows, found = columns.rows, []
    for together in (2, 1) if lines % 2 == 0 and rows.may_pair else (1,):
        strip = max(n for n in divisors(positions) if n <= most // together)
        made = len(columns.readers(strip)) * rows.dots(rows.step * (together - 1))
        found.append((made / (together * strip), together, strip))
    return min(found)[1:]
