"""Depthwise convolutions of floats, tap by tap: channels are in lanes, and the sums of some positions of a row in
registers, so that each vector of weights is loaded once for all of them, and each element where it is multiplied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from mrt.backend.kernels.dot_instructions import choose_dot
from mrt.backend.kernels.generic.dot import DotForm
from mrt.backend.kernels.generic.dot_epilogue import is_written_out
from mrt.backend.kernels.generic.overlap_pairs import PAIR
from mrt.backend.machine import Machine
from mrt.backend.memory.storage import Storage, View
from mrt.backend.schedule.loops import LINE_BYTES, divisors, extent, in_registers, parallelize, split_loops
from mrt.backend.te.operands import Operand, Packed, Surroundings
from mrt.backend.te.stages import stage
from mrt.backend.tir.expressions import Expression
from mrt.backend.tir.statements import ROLLED
from mrt.symbol import Array
from mrt.symbol.types import type_of

MOST = 14
"""Sums of a tile, in vectors: more than the latency of a multiply-add asks for, two of which are done per cycle."""


@dataclass(frozen=True)
class TapForm(DotForm):
    """How a depthwise weight lies in memory whose taps are multiplied one by one: [block, taps..., lane]."""


def pack_lanes(weight: Array, data: View, surroundings: Surroundings) -> Packed | None:
    """The float weight (channels, 1, taps...) as [block, taps..., lane]; None if the data lies otherwise."""
    storage, machine = data.storage, surroundings.machine
    if storage is None or weight.dtype.kind != "f" or data.dtype != weight.dtype.name or storage.offset:
        return None
    dot = choose_dot(data.dtype, weight, data.dtype, machine)
    if storage.depth != surroundings.walk.storage.length or storage.depth % dot.lanes:
        return None
    laid = np.pad(weight[:, 0], [(0, storage.depth - len(weight)), *((0, 0) for _ in weight.shape[2:])])
    packed = np.moveaxis(laid.reshape(-1, dot.lanes, *weight.shape[2:]), 1, -1)
    form = TapForm(dot, flat=False, groups=1)
    return Packed(form, (np.ascontiguousarray(packed),), (Storage.plain(type_of(packed)),))


def tap_sums(
    data: View,
    weight: Operand,
    positions: Sequence[int],
    kernel: Sequence[int],
    window: Callable[[Sequence[Expression], Sequence[Expression]], list[Expression]],
) -> Callable[..., Expression]:
    """A function of (channel, n, position...) that gives the sum over the taps.

    window: of a position and a tap, where in the data it is.
    """
    dot, (packed,), storage = weight.form.dot, weight.views, data.storage
    if storage is None:
        raise ValueError("taps are read from memory")
    taps = [te.reduce_axis((0, n), f"tap{i}") for i, n in enumerate(kernel)]

    def total(*at: Expression) -> Expression:
        n, *position, block, lane = at
        held = data.tensor(*storage.places([n, block * dot.lanes + lane, *window(position, taps)]))
        return te.sum(held * packed(block, *taps, lane), axis=taps)

    sums = stage((*positions, storage.depth // dot.lanes, dot.lanes), total, "taps", taps=True)
    return lambda channel, *at: sums(*at, tirx.floordiv(channel, dot.lanes), tirx.floormod(channel, dot.lanes))


def schedule_taps(plan: Any, sums: Any, output: Any, machine: Machine) -> None:
    """A tile of positions of a row at a time, of as many channels as a line of the cache holds, if that is two vectors.

    Of one vector of channels, each line would be read for a half, and again for the other one.
    """
    *outer, row, channel = plan.get_loops(output)
    spatial, taps = split_loops(plan, sums)
    lanes, element = extent(plan, spatial[-1]), plan.get(sums).writes[0].source.dtype.itemsize
    written_out = is_written_out(plan, channel, lanes)
    count = PAIR if lanes * element < LINE_BYTES and extent(plan, channel) // lanes % PAIR == 0 else 1
    blocks, held, lane = plan.split(channel, [None, count, lanes])
    tiles, inner = plan.split(row, [None, _positions(extent(plan, row), min(MOST, machine.registers - count) // count)])
    plan.reorder(*outer, tiles, blocks, inner, held, lane)
    plan.compute_at(sums, blocks, preserve_unit_loops=True)
    loops = list(plan.get_loops(sums))[len(outer) + 2 :]
    at, steps = loops[: -len(taps)], loops[-len(taps) :]
    plan.reorder(*steps, *at)
    in_registers(plan, at)
    for step in steps:
        plan.annotate(step, ROLLED, 1)
    parallelize(plan, [*outer, tiles])
    in_registers(plan, list(plan.get_loops(plan.decompose_reduction(sums, steps[0])))[-len(at) :])
    plan.vectorize(lane)
    if written_out:
        plan.unroll(inner)
        plan.unroll(held)


def _positions(length: int, most: int) -> int:
    """Of a tile of a row of so many: a divisor that is more than half of `most`, or of as equal tiles as can be."""
    divisor = max(n for n in divisors(length) if n <= most)
    return divisor if 2 * divisor > most else -(-length // -(-length // most))
