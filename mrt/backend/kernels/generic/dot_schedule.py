"""How sums of dots are scheduled: which of them stay in registers, and which operand is walked once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mrt.backend.kernels.generic.dot_epilogue import Epilogue
from mrt.backend.kernels.generic.dot_extents import DotExtents, extents_of
from mrt.backend.kernels.generic.prefetch import Prefetches
from mrt.backend.machine import Machine
from mrt.backend.schedule.loops import (
    FEW_REGISTERS,
    FIRST_BYTES,
    SHORT_ROW,
    WORKING,
    extent,
    in_registers,
    leave_first_cache,
    parallelize,
    product,
    register_tile,
    split_loops,
    walk_cost,
)
from mrt.backend.schedule.tilings import Choose, VectorTiling, by_rule
from mrt.backend.te.stages import Hint
from mrt.backend.tir.statements import ROLLED
from mrt.symbol import Refusal

JAM = "unroll_and_jam"
"""What a refusal of a schedule is about."""
FEW_POSITIONS = 3
"""A tile of fewer positions, as of rows of a prime length, loads weights too often: the last one is shorter
then, or tiles are jammed."""
AHEAD = 32
"""How many steps ahead weights are prefetched into the first cache: as long as the third one takes."""
FEW_STEPS = 512
"""A sum of no more steps, of one tap or by an instruction, waits for the memory that it is written to."""
SINGLE_BLOCK = 2
"""Further registers that two steps of float sums need where a tile has one block: each element is multiplied once then,
and LLVM puts the new sum in its register. Without them eleven positions took 1.3 times as long as by one step."""


def schedule_dots(
    plan: Any,
    sums: Any,
    output: Any,
    machine: Machine,
    own: Sequence[Any] = (),
    choose: Choose = by_rule,
    total: Any = None,
    once: bool = False,
) -> tuple[Refusal, ...]:
    """Tiles of positions and blocks of output channels stay in registers while all their dots are summed.

    The output's loops are [positions..., channel]; the sums' are [positions..., block, lane, taps..., step, within].
    By the rule the weights or the data are walked once, and the other again for each part of it: what costs less.
    own: the blocks that make what the first loop of positions has of its own, as weights are; it stays outermost.
    choose: see `tilings`.
    total: the block that adds up sums of slices, whose loops are [slice, positions..., block, lane, ...]: both stay in
    registers (see `sliced_dot`). once: whether each element must be computed once only.
    Gives why tiles are not jammed and results not stored packed, where sums are formed by an instruction.
    """
    *positions, channel = plan.get_loops(output)
    row = positions[-1] if positions else plan.add_unit_loop(channel)
    first_rows, rows = (positions[:1], positions[1:-1]) if own else ([], positions[:-1])
    extents = extents_of(plan, sums, output, row, rows, own, total)
    rule, refusals = _rule(extents, extents.count > 1, machine)
    tiling = choose(
        rule.alternatives(
            extents.length, extents.group_blocks // extents.parts, extents.parts, extents.dots, machine, extents.copies
        )
    )
    epilogue = Epilogue.of(plan, channel, extents, tiling, once)
    blocks, lane = plan.split(channel, [None, epilogue.blocks * extents.lanes])
    outer_blocks, inner_blocks = plan.split(blocks, [None, tiling.blocks // epilogue.blocks])
    stretches, tiles, inner_positions = plan.split(row, [None, tiling.near, tiling.positions])
    walked = [outer_blocks, *rows, stretches] if tiling.weights_outermost else [*rows, stretches, outer_blocks]
    outer = [*first_rows, *walked]
    plan.reorder(*outer, tiles, inner_positions, inner_blocks, lane)
    _form_sums(plan, sums, total, own, (first_rows, outer, tiles), (extents, tiling, machine))
    epilogue.apply(plan, inner_positions, inner_blocks, lane)
    return (*refusals, *epilogue.refusals) if extents.by_instruction else ()


def _form_sums(
    plan: Any,
    sums: Any,
    total: Any,
    own: Sequence[Any],
    loops: tuple[Sequence[Any], list[Any], Any],
    chosen: tuple[DotExtents, VectorTiling, Machine],
) -> None:
    """Schedules the sums of a tile within the output's loops, and says which loops threads share.

    loops: those outside of tiles that every part of `own` has of its own, all of those, and the one over tiles.
    """
    (first_rows, outer, tiles), (extents, tiling, machine) = loops, chosen
    around = [*outer, tiles]
    if total is not None:
        around.append(_scheduled_total(plan, total, around))
    at, steps = _scheduled_sums(plan, sums, around, extents)
    for block in reversed(own):
        plan.compute_at(block, first_rows[0], preserve_unit_loops=True)
    _prefetches(extents, tiling, machine).annotate(plan, steps)
    if machine.registers <= FEW_REGISTERS:
        _unroll_steps(plan, steps[-1], extents, tiling, machine)
    if tiling.jammed > 1:
        *before, last_row, _ = outer
        plan.annotate(last_row if tiling.near == 1 else tiles, Hint.UNROLL_AND_JAM, tiling.jammed)
        outer = before if tiling.near == 1 else outer
    # Threads are told apart before the sums are started in a block of their own, after which TVM refuses.
    parallelize(plan, list(first_rows) or outer)
    if total is not None:
        _start(plan, total, around[-1], len(at) - 1)
    _start(plan, sums, steps[0], len(at))
    if extents.by_instruction:
        plan.tensorize(at[-1], str(plan.get(sums).annotations[Hint.DOT]))


def _rule(extents: DotExtents, several_rows: bool, machine: Machine) -> tuple[VectorTiling, tuple[Refusal, ...]]:
    """The tiling that costs least as far as is counted: cycles of a tile, and elements that come from far memory.

    And why its tiles are not jammed, if they are not.
    """
    length, count, depth = extents.length, extents.count, extents.depth
    # Many registers hold so large tiles of floats that a row ends with a shorter one; of few, neighbours are jammed.
    is_roomy = not extents.by_instruction and machine.registers > FEW_REGISTERS
    ends_short = is_roomy and extents.is_plain and not several_rows
    may_rest = ends_short and length <= SHORT_ROW
    tile, held = _registers(extents, machine, may_rest)
    if tile < FEW_POSITIONS and ends_short:
        may_rest = True
        tile, held = _registers(extents, machine, may_rest)
    in_row = -(-length // tile)
    # Where the last tile is shorter, an outer loop has it made apart; an inner one would ask at each step.
    tiles = 1 if length % tile else in_row if several_rows else _near_tiles(in_row, tile * depth * extents.element)
    weights, data = extents.blocks * extents.lanes * depth, count * length * depth
    again = walk_cost(data, extents.blocks // held, extents.data * extents.element)
    by_blocks = walk_cost(weights, count * in_row // tiles, weights * extents.element) > again
    plain = VectorTiling(tile, held // extents.parts, tiles, by_blocks)
    if not extents.may_jam:
        return plain, (Refusal(JAM, "other blocks are computed within the same loops"),)
    if is_roomy and (extents.is_plain or tile >= FEW_POSITIONS):
        return plain, (Refusal(JAM, "products are formed one by one, in many registers"),)
    if not by_blocks and tile >= FEW_POSITIONS:
        return plain, (Refusal(JAM, "the data is walked once, so that its loads are what counts"),)
    jammed, blocks = _registers(extents, machine, may_rest, extents.lines)
    if length % jammed == 0:
        return plain, (Refusal(JAM, f"rows of {length} positions can be cut into equal tiles"),)
    if jammed > length and blocks <= extents.parts:
        return plain, (Refusal(JAM, "no pair of rows loads weights less often"),)
    unit = math.gcd(jammed, length)
    return VectorTiling(unit, blocks // extents.parts, length // unit, True, jammed // unit), ()


def _registers(extents: DotExtents, machine: Machine, may_rest: bool, rows: int = 0) -> tuple[int, int]:
    """The (positions, blocks) of a register tile. rows: see `register_tile`."""
    return register_tile(
        extents.length,
        extents.group_blocks,
        extents.dots,
        machine,
        extents.multiple,
        extents.copies,
        extents.line,
        may_rest,
        rows,
        extents.lines_of_dot,
        extents.crossed,
    )


def _near_tiles(tiles: int, tile_bytes: int) -> int:
    """How many tiles in a row are done for one block of output channels before the next."""
    return max(n for n in range(1, tiles + 1) if tiles % n == 0 and (n == 1 or n * tile_bytes <= FIRST_BYTES))


def _unroll_steps(plan: Any, steps: Any, extents: DotExtents, tiling: VectorTiling, machine: Machine) -> None:
    """Says how the loop over steps is unrolled where few registers hold sums.

    LLVM is not to do it: it would keep sums of floats in memory. Two steps of these need registers for what both
    multiply. A step of crossed dots is two.
    """
    sums = tiling.positions * tiling.jammed * tiling.blocks
    has_room = sums + WORKING + SINGLE_BLOCK * (tiling.blocks == 1) <= machine.registers
    fits = not extents.crossed if extents.by_instruction else has_room and extents.length % tiling.positions == 0
    if fits:
        plan.annotate(steps, Hint.TWO_STEPS, 1)
    if not extents.by_instruction:
        plan.annotate(steps, ROLLED, 1)


def _scheduled_sums(plan: Any, sums: Any, around: Sequence[Any], extents: DotExtents) -> tuple[list[Any], list[Any]]:
    """The loops of the sums of a tile, computed within the loops `around`: those that say which sum, and over steps."""
    reduced = len(split_loops(plan, sums)[1])
    plan.compute_at(sums, around[-1], preserve_unit_loops=True)
    inside = list(plan.get_loops(sums))[len(around) :]
    at, steps = inside[:-reduced], inside[-reduced:]
    *spatial, lane = at
    *positions, block = spatial
    if extent(plan, block) > product(plan, positions):
        # LLVM holds in registers what is multiplied by several others: elements then, else weights.
        spatial = [block, *positions]
    if extents.by_instruction:
        *steps, within = steps
        plan.reorder(*steps, *spatial, lane, within)
    else:
        plan.reorder(*steps, *spatial, lane)
        plan.vectorize(lane)
    for loop in spatial:
        plan.unroll(loop)
    return at, steps


def _scheduled_total(plan: Any, total: Any, around: Sequence[Any]) -> Any:
    """The loop over slices of the block that adds up their sums, computed within the loops `around`."""
    plan.compute_at(total, around[-1], preserve_unit_loops=True)
    *positions, lane, slices = list(plan.get_loops(total))[len(around) :]
    plan.reorder(slices, *positions, lane)
    in_registers(plan, [*positions, lane])
    return slices


def _start(plan: Any, block: Any, loop: Any, count: int) -> None:
    """Sets the sums of a block to 0 before `loop`, in registers: they are walked by so many loops."""
    in_registers(plan, list(plan.get_loops(plan.decompose_reduction(block, loop)))[-count:])


def _prefetches(extents: DotExtents, tiling: VectorTiling, machine: Machine) -> Prefetches:
    held = tiling.blocks * extents.parts
    # Of few sums a step has so few products that what it fetches takes as many instructions.
    has_few = machine.registers <= FEW_REGISTERS
    # Where all positions are done before the next blocks, weights are walked once, too: measured with few registers.
    all_near = has_few and extents.count == 1 and tiling.near * tiling.positions >= extents.length
    walks_once = (tiling.weights_outermost or all_near) and extents.alone and tiling.blocks < extents.blocks
    is_short = extents.dots <= FEW_STEPS
    fetches = extents.is_plain and not has_few
    return Prefetches(
        blocks=held,
        tile=tiling.positions,
        tiles=extents.count * -(-extents.length // tiling.positions) if walks_once else 0,
        at_once=has_few,
        ahead=AHEAD if fetches and leave_first_cache(held, extents.dots, machine) else 0,
        results=fetches and (extents.taps > 1 or is_short),
        written=extents.alone and extents.by_instruction and tiling.jammed == 1 and is_short,
    )
