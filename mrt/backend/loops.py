"""What every schedule asks of loops: how long they are, which reduce, and whether threads pay."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from mrt.backend.machine import Machine

PARALLEL_FROM = 1 << 15
"""Elementary operations below which starting threads costs more than it gains."""
STACK_BYTES = 1024
"""TVM keeps a buffer on the stack only below this size; elsewhere accumulators would not stay in registers."""
MULTIPLY_ADD_LATENCY = 4.0
"""Cycles until a multiply-add's result can be added to."""
MOST_BLOCKS = 12
"""Of output channels in one register tile."""
SPATIAL, REDUCTION = int(tirx.IterVar.DataPar), int(tirx.IterVar.CommReduce)
"""Kinds of a block's axes."""


def split_loops(plan: Any, block: Any) -> tuple[list[Any], list[Any]]:
    """The spatial and the reduction loops of a block that is not scheduled yet."""
    kinds = [int(variable.iter_type) for variable in plan.get(block).iter_vars]
    loops = list(plan.get_loops(block))
    return (
        [loop for loop, kind in zip(loops, kinds, strict=True) if kind == SPATIAL],
        [loop for loop, kind in zip(loops, kinds, strict=True) if kind == REDUCTION],
    )


def has_reduction(plan: Any, block: Any) -> bool:
    return any(int(variable.iter_type) == REDUCTION for variable in plan.get(block).iter_vars)


def parallelize(plan: Any, loops: list[Any], work: int) -> None:
    """Fuses `loops`, which stand outermost, and runs them in parallel if that pays; work: operations inside them."""
    count = product(plan, loops)
    if not loops or count == 1 or count * work < PARALLEL_FROM:
        return
    plan.parallel(plan.fuse(*loops) if len(loops) > 1 else loops[0])


def extent(plan: Any, loop: Any) -> int:
    return int(plan.get(loop).extent)


def product(plan: Any, loops: list[Any]) -> int:
    count = 1
    for loop in loops:
        count *= extent(plan, loop)
    return count


def divisors(count: int) -> list[int]:
    """In rising order."""
    return [n for n in range(1, count + 1) if count % n == 0]


def register_room(blocks: int, lanes: int, machine: Machine, copies: int = 1) -> int:
    """How many positions' sums for `blocks` of output channels stay in registers, so many `copies` of them."""
    registers = (machine.registers - 1 - blocks) // (copies * blocks)
    return min(registers, (STACK_BYTES - 1) // (blocks * lanes * 4))


def register_tile(
    positions: int, blocks: int, lanes: int, machine: Machine, multiple: int = 1, copies: int = 1
) -> tuple[int, int]:
    """(positions, blocks) of a register tile, by the cycles that one reduction step costs for all positions.

    Two multiply-adds and two loads are done per cycle; a step loads each position's element and each block's weights.
    Accumulators, a step's weights and one element are in registers. Of tiles that cost the same the one of most
    positions loads the weights, which are longer than the first cache, least often. multiple: of which the blocks are
    one. copies: of the accumulators.
    """
    best, least = (1, multiple), (float("inf"), 0)
    for together in (n for n in range(multiple, MOST_BLOCKS + 1, multiple) if blocks % n == 0):
        room = register_room(together, lanes, machine, copies)
        for tile in (n for n in range(1, room + 1) if positions % n == 0):
            cycles = max(tile * together / 2, (tile + together) / 2, MULTIPLY_ADD_LATENCY)
            cost = (round(cycles * (positions // tile) / together, 6), -tile)
            if cost < least:
                best, least = (tile, together), cost
    return best
