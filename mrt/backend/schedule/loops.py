"""What every schedule asks of loops: how long they are, which reduce, and which threads may share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from mrt.backend.machine import Machine
from mrt.backend.te.stages import Hint

MULTIPLY_ADD_LATENCY = 4.0
"""Cycles until a multiply-add's result can be added to."""
LINE_BYTES = 64
"""Bytes of a line of a cache."""
LOAD, LINE, LOOP = 0.1, 0.65, 0.5
"""Cycles that a vector which is loaded costs beside the multiply-adds that are done at the same time, a line of weights
that the first cache does not hold beyond that, and a turn of the loop: as measured on a Sapphire Rapids."""
BEGIN, CONSTANTS = 10.0, 4.0
"""Cycles that a tile costs besides, and those for what each of its blocks has by channel, such as a bias."""
WINDOW, EPILOGUE = 320, 10
"""Instructions that a core works on at once, and those that make a result of each sum. They are done beside the
products of the next tile as far as both tiles are among what it works on: short sums take small tiles."""
WORKING = 4
"""Registers that are left to elements and weights beside the accumulators."""
BESIDE = 2
"""Registers for an element or weight that comes by itself and for a product, beside sums and what stays with them."""
FEW_REGISTERS, DATA_LINE, SINGLE, SECOND_LINES = 16, 5.0, 1.5, 0.5
"""So few that tiles are small and read much; cycles that a line of data costs there beside the multiply-adds, if it
comes from beyond the first cache, and a sum that is not one of a pair of blocks, whose results fill a vector; lines of
weights that come from the second cache in a cycle: as measured on Zen 5 held to AVX2. With more registers none of these
counts."""
FEW_DOTS = 4
"""Steps of a sum up to which registers hold all its weights, too, for many positions."""
REST = 1.05
"""How many times as long tiles must take for jammed ones to serve whose last is shorter; half a tile of an odd number
of positions is another matter."""
FIRST_BYTES = 1 << 14
"""Bytes of data or weights that stay in the first cache while they are walked again: half of a small one."""
SECOND_BYTES, FAR = 1 << 19, 2
"""Bytes of data or weights that stay in the second cache while they are walked again, beside what else goes through it;
how many times as long those take that do not."""
MOST_BLOCKS = 12
"""At most of output channels in one register tile."""
SHORT_ROW = 64
"""Positions of a map whose lines are one row."""
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


def parallelize(plan: Any, loops: list[Any]) -> None:
    """Fuses `loops`, which stand outermost, and lets threads share their turns, if that pays (see `serial`)."""
    if not loops or product(plan, loops) == 1:
        return
    turns = [extent(plan, loop) for loop in loops]
    shared = plan.fuse(*loops) if len(loops) > 1 else loops[0]
    plan.annotate(shared, Hint.FUSED, turns)
    plan.parallel(shared)


def in_registers(plan: Any, loops: Sequence[Any]) -> None:
    """Writes out loops over what registers hold; the last one is over the lanes of a vector."""
    *outer, lane = loops
    plan.vectorize(lane)
    for loop in outer:
        plan.unroll(loop)


def extent(plan: Any, loop: Any) -> int:
    return int(plan.get(loop).extent)


def product(plan: Any, loops: Sequence[Any]) -> int:
    count = 1
    for loop in loops:
        count *= extent(plan, loop)
    return count


def divisors(count: int) -> list[int]:
    """In rising order."""
    return [n for n in range(1, count + 1) if count % n == 0]


def register_room(blocks: int, steps: int, machine: Machine, copies: int = 1, crossed: bool = False) -> int:
    """How many positions' sums of so many `steps` for `blocks` of output channels stay in registers, with `copies`.

    crossed: whether each product is one of two sums, so that twice as much comes and stays besides.

    With copies, sums of several blocks load so much less that a few copies may wait in the first cache.
    """
    if copies > 1:
        return (machine.registers - WORKING * (blocks == 1)) // (copies * blocks)
    if steps <= FEW_DOTS:
        return (machine.registers - WORKING - blocks * steps) // blocks
    if machine.registers <= FEW_REGISTERS:
        # Elements or weights stay, what there are less of; the others come one by one, and a product is formed.
        tiles, times = range(machine.registers, 0, -1), 2 if crossed else 1
        fitting = (n for n in tiles if n * blocks + times * (min(n, blocks) + BESIDE) <= machine.registers)
        return next(fitting, 0)
    # The weights of one block take one register, those of two mostly two.
    return (machine.registers - WORKING + (blocks == 1)) // blocks


def leave_first_cache(blocks: int, steps: int, machine: Machine) -> bool:
    """Whether the weights of so many `steps` for `blocks` of output channels come from the second cache each time."""
    return blocks * steps * machine.vector_bits // 8 > FIRST_BYTES


def walk_cost(elements: int, times: int, size: int) -> int:
    """What it costs to read so many elements, of `size` bytes, so many times: in reads from the second cache."""
    return elements * times * (FAR if size > SECOND_BYTES else 1)


def register_tile(
    positions: int,
    blocks: int,
    steps: int,
    machine: Machine,
    multiple: int = 1,
    copies: int = 1,
    line: int | None = None,
    may_rest: bool = False,
    rows: int = 0,
    lines: float = 0.0,
    crossed: bool = False,
) -> tuple[int, int]:
    """(positions, blocks) of a register tile, by the cycles that it takes for each of its sums of so many `steps`.

    Two multiply-adds and two loads are done per cycle; a step loads each position's element and each block's weights,
    those for which no register is left once for each position. multiple: of which the blocks are one. copies: of the
    accumulators. line: positions of a line, where lines do not follow each other; tiles are some lines then, or a part
    of one. may_rest: whether the last tile may be shorter than the others. rows: how many there are, where tiles may be
    jammed (see `VectorTiling`): a pair of whole rows, or neighbours in a row, whose last tile may be shorter; else 0.
    lines: of a cache, that a position reads for a dot of data that the first one does not hold. crossed: see
    `register_room`.
    """
    best, least = (1, multiple), float("inf")
    # With copies, the sums of one block are so few that each dot loads an element.
    fewest = 2 * multiple if (copies > 1 or crossed) and blocks % (2 * multiple) == 0 else multiple
    for held in (n for n in range(fewest, MOST_BLOCKS + 1, multiple) if blocks % n == 0):
        for tile in range(1, register_room(held, steps, machine, copies, crossed) + 1):
            walked = positions * rows if rows > 1 and tile == 2 * positions else positions
            count, rest = divmod(walked, tile)
            if not count or (rest and not (may_rest or rows)) or (line and line % tile and tile % line):
                continue
            if rows and positions % tile and not _jammed_tile_fits(tile, held, machine, crossed):
                continue
            row = count * _step_cycles(tile, held, steps, machine, lines)
            row += _step_cycles(rest, held, steps, machine, lines) if rest else 0
            is_half = positions % 2 == 1 and 2 * rest == tile
            cost = row / (walked * held) * (REST if rest and not (may_rest or is_half) else 1)
            # Of tiles that cost the same the one of most positions.
            if round(cost, 6) <= least:
                best, least = (tile, held), round(cost, 6)
    return best


def _jammed_tile_fits(tile: int, blocks: int, machine: Machine, crossed: bool) -> bool:
    """Whether few registers hold a tile in which each position's element is multiplied by all weights before the next
    one's: all weights stay."""
    beside = (2 if crossed else 1) * (blocks + BESIDE)
    return machine.registers > FEW_REGISTERS or tile * blocks + beside <= machine.registers


def _step_cycles(tile: int, blocks: int, steps: int, machine: Machine, lines: float) -> float:
    """Cycles of each step of a register tile, with its share of what the tile takes besides."""
    far = blocks * machine.vector_bits / (8 * LINE_BYTES) if leave_first_cache(blocks, steps, machine) else 0.0
    late = LINE * far
    held = min(blocks, machine.registers - tile * blocks - 1)
    loads = tile + held + (blocks - held) * tile
    least = max(tile * blocks / 2, loads / 2, MULTIPLY_ADD_LATENCY)
    if machine.registers <= FEW_REGISTERS:
        late += tile * (DATA_LINE * lines + SINGLE * (blocks % 2) * blocks / steps)
        least = max(least, far / SECOND_LINES)
    step = least + LOAD * loads + late + LOOP
    sums = tile * blocks
    # Tiles of 16 registers are small enough.
    share = min(1.0, sums * (steps + EPILOGUE) / WINDOW) if machine.registers > 16 else 0.0
    late_results = share * sums * EPILOGUE / 2
    return step + (BEGIN + CONSTANTS * blocks + late_results) / steps
