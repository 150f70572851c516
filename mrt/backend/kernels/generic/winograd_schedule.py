"""How convolutions by Winograd's algorithm are scheduled: stripes of tiles, and products of some of these at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mrt.backend.kernels.generic.winograd_choice import WinogradTiling
from mrt.backend.kernels.x86.avx2.joined_lookups import joins_look_ups
from mrt.backend.kernels.x86.avx512.packed_store import stores_packed
from mrt.backend.machine import Machine
from mrt.backend.schedule.loops import FEW_REGISTERS, extent, in_registers, parallelize
from mrt.backend.te.stages import Hint

AHEAD = 4096
"""Bytes from the weights that a step multiplies to those that it prefetches."""


@dataclass(frozen=True)
class WinogradBlocks:
    """The stages of `winograd_sums`."""

    data: Any
    dots: Any
    products: Any
    multiples: Any
    sums: Any


def schedule_winograd(plan: Any, stages: WinogradBlocks, output: Any, machine: Machine) -> None:
    """Of a stripe of tiles the data are transformed, then for some output channels after the other, and for some of its
    tiles at once, products are formed point by point, results made of them, and the output of these.

    The output's loops are [n, line, column, channel].
    """
    tiling = WinogradTiling.of_hint(plan.get(stages.dots).annotations[Hint.WINOGRAD])
    lanes = int(plan.get(stages.dots).writes[0].source.shape[-1])
    sample, line, column, channel = plan.get_loops(output)
    stores = stores_packed(plan, channel)
    by_lines, lines = plan.split(line, [None, tiling.algorithm.tile])
    by_columns, columns = plan.split(column, [None, tiling.algorithm.tile])
    channels, lane = plan.split(channel, [None, lanes])
    stripe, several, tile_line = plan.split(by_lines, [None, tiling.stripe // tiling.lines, tiling.lines])
    some, tile_column = plan.split(by_columns, [None, tiling.columns])
    outer, blocks = plan.split(channels, [None, tiling.blocks])
    by_weights = extent(plan, stripe) == 1 and (extent(plan, sample) == 1 or tiling.far)
    walked = [outer, sample, stripe] if by_weights else [sample, stripe, outer]
    plan.reorder(*walked, several, some, tile_line, tile_column, lines, columns, blocks, lane)
    plan.compute_at(stages.sums, tile_column, preserve_unit_loops=True)
    _schedule_results(plan, stages)
    _schedule_products(plan, stages, some, machine)
    if not by_weights:
        plan.compute_at(stages.data, stripe, preserve_unit_loops=True)
    of_data = _schedule_data(plan, stages.data)
    if by_weights:
        parallelize(plan, of_data)
    parallelize(plan, [outer] if by_weights else [sample, stripe])
    _start(plan, stages.dots)
    if stores:
        plan.annotate(lines, Hint.PACKED_STORE, 1)
        return
    if joins_look_ups(plan, lane):
        plan.annotate(columns, Hint.JOINED_LOOK_UPS, 1)
    in_registers(plan, [columns, blocks, lane])


def _schedule_data(plan: Any, data: Any) -> list[Any]:
    """Vectors of channels, within which `WinogradTransforms` writes the loops. Gives those over samples and lines
    of tiles, which threads may share."""
    *_, sample, lines, columns, point, vector, line, column, part, lane, row, element = plan.get_loops(data)
    plan.reorder(sample, lines, line, columns, column, vector, part, point, lane, row, element)
    plan.unroll(part)
    return [sample, lines]


def _schedule_products(plan: Any, stages: WinogradBlocks, at: Any, machine: Machine) -> None:
    """Sums of dots in registers for one point of some tiles after the other; then they wait in memory for the rest."""
    plan.compute_at(stages.products, at, preserve_unit_loops=True)
    *_, line, column, part, block, point, lane = plan.get_loops(stages.products)
    plan.reorder(point, line, column, part, block, lane)
    plan.compute_at(stages.dots, point, preserve_unit_loops=True)
    *spatial, vector, step, within = plan.get_loops(stages.dots)[-10:]
    plan.reorder(vector, step, *spatial, within)
    plan.annotate(step, Hint.PREFETCH_STREAM, [AHEAD, 3])
    if machine.registers <= FEW_REGISTERS and plan.get(stages.dots).annotations[Hint.DOT]:
        plan.annotate(step, Hint.TWO_STEPS, 1)  # Sums of floats are left to LLVM.
    for loop in (line, column, part, block, *spatial[:-1]):
        plan.unroll(loop)
    plan.vectorize(lane)


def _start(plan: Any, dots: Any) -> None:
    """Sets sums to 0 before their steps, and puts the instruction in place."""
    *_, vector, _, _, _, _, _, _, _, lane, within = plan.get_loops(dots)
    intrinsic = str(plan.get(dots).annotations[Hint.DOT])
    if not intrinsic:
        plan.reorder(within, lane)
        plan.vectorize(lane)
    in_registers(plan, plan.get_loops(plan.decompose_reduction(dots, vector))[-7:])
    if intrinsic:
        plan.tensorize(lane, intrinsic)


def _schedule_results(plan: Any, stages: WinogradBlocks) -> None:
    """Sums of a block of output channels of a tile; `WinogradTransforms` writes their multiples."""
    *_, line, column, block, lane = plan.get_loops(stages.sums)
    plan.reorder(block, line, column, lane)
    plan.compute_at(stages.multiples, block, preserve_unit_loops=True)
    *_, part, of_line, of_column, of_block, of_lane, row, element = plan.get_loops(stages.multiples)
    plan.reorder(part, of_block, of_line, of_column, of_lane, row, element)
    in_registers(plan, [line, column, lane])
