"""Sums of dots in AMX's tile registers, whose one instruction multiplies 16 positions by 16 output channels.

A tile has up to 16 rows of 64 bytes. `tdpbusd` takes a tile of data (a row: some dots of one position), one of weights
(a row: one dot of 16 output channels) and adds their products to a tile of sums. It takes as long where tiles are not
full. Weights lie as they do for vpdpbusd, so that only the loops differ; `instructions.py` writes what is in them.
Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

from tvm import tirx

from mrt.backend.kernels.generic.dot_epilogue import blocks_per_vector
from mrt.backend.kernels.generic.sum_block import SumBlock
from mrt.backend.kernels.x86.vnni.dots import VPDPBUSD_512
from mrt.backend.schedule.loops import divisors, extent, parallelize, product, split_loops
from mrt.backend.schedule.tilings import Choose, by_rule
from mrt.backend.te.stages import Hint
from mrt.backend.tir.expressions import Expression, constant

ROWS = 16
"""Rows of a tile, and sums in one of them."""
ROW_BYTES = 64
DOT_BYTES = 4
SUMS_BYTES = 1 << 14
"""At most of sums that wait for the epilogue: they stay in the first cache, beside the data."""
FAR_BYTES = 1 << 20
"""Bytes of weights that the second cache does not keep while all data is walked."""
FEWEST = 4
"""Positions, and dots in a row of a tile, below which vectors are faster."""
SHALLOW = 8
"""Dots of a whole sum below which vectors are faster."""
STORED = 4
"""Blocks of one position that are stored after each other: a line of the cache in bytes."""
REGISTERS = 2
"""Tiles of data, and as many of weights, whose products are summed in registers at the same time."""
LOAD, FETCH = 10, 12
"""How long a tile takes to come from the first cache, and how much longer from the second: in rows of products."""
FAR_SUM = 2.5
"""How much longer, in these, a row of sums takes to be read where all that wait fill more than half of SUMS_BYTES."""


@dataclass(frozen=True)
class TileTiling:
    """A part of the output: `lines` x `positions` of the output's last two axes, for `blocks` of output channels.

    rows: positions in a tile. dots: in a row of a tile of data. joined: how many positions of data there are from line
    to line where tiles run on from one to the next, and what is summed between them is not used; 0 where they do not.
    """

    lines: int
    positions: int
    blocks: int
    rows: int
    dots: int
    joined: int

    @property
    def length(self) -> int:
        """The positions of a stretch that is cut into tiles: a line, or all lines joined."""
        return (self.lines - 1) * self.joined + self.positions if self.joined else self.positions

    def spans(self, axes: int) -> list[int]:
        """How far it reaches along the axes of the sums, [positions..., block, lane]; axes: those of positions."""
        positions = [1] * axes
        positions[-1] = self.positions
        if axes > 1:
            positions[-2] = self.lines
        return [*positions, self.blocks, ROWS]

    @property
    def in_stretch(self) -> int:
        """Its tiles; the last one ends with it and may overlap the one before."""
        return -(-self.length // self.rows)

    @property
    def tiles(self) -> int:
        return self.in_stretch * (1 if self.joined else self.lines)

    def place(self, tile: Expression) -> tuple[Expression, Expression]:
        """The (line, position) at which a tile begins; joined lines are counted by position."""
        several = self.in_stretch > 1 and not self.joined
        line = tile // self.in_stretch if several else constant(0, "int32") if self.joined else tile
        position = (tile % self.in_stretch if several else tile if self.joined else constant(0, "int32")) * self.rows
        return line, position if self.length % self.rows == 0 else tirx.min(position, self.length - self.rows)


class DotBlock(SumBlock):
    """A block of dots of bytes: its axes are [positions..., block, lane, taps..., step, within]."""

    def __init__(self, block: Any) -> None:
        super().__init__(block)
        self.positions = len(block.writes[0].region) - 2

    @property
    def taps(self) -> range:
        return range(self.positions + 2, len(self.variables) - 2)

    @property
    def run(self) -> tuple[int, int]:
        """How many dots follow each other in the data as they do in the weights, and the first axis that they run
        along."""
        first = len(self.variables) - 2
        count = self.lengths[first]
        for axis in reversed(self.taps):
            if self.lengths[axis] > 1 and self.pitch(axis) != count * DOT_BYTES:
                break
            first, count = axis, count * self.lengths[axis]
        return count, first


def tile_dots(plan: Any, sums: Any, output: Any, choose: Choose = by_rule, whole: Any = None) -> str:
    """Schedules by tiles what `schedule_dots` does by vectors; why not, where that is faster or cannot be.

    `AmxTiles` writes the instructions once everything is scheduled. choose: see `tilings`. whole: the block that makes
    one sum of those of several bytes of a weight; it is done beside the output, which so reads blocks in pairs.
    """
    *positions, channel = plan.get_loops(output)
    around = [extent(plan, loop) for loop in positions]
    if refused := _refused(plan.get(sums), around):
        return refused
    tilings = _tilings(plan.get(sums), around)
    if not tilings:
        return "the sums of no tiling fit the first cache"
    tiling = choose(tilings)
    if len(positions) == 1:
        positions.insert(0, plan.add_unit_loop(positions[0]))
    outer, epilogue = _split(plan, sums, positions, channel, tiling, around)
    if whole is not None:
        plan.compute_at(whole, outer[-1], preserve_unit_loops=True)
        plan.vectorize(plan.get_loops(whole)[-1])
    plan.compute_at(sums, outer[-1], preserve_unit_loops=True)
    spans = tiling.spans(DotBlock(plan.get(sums)).positions)
    if [extent(plan, loop) for loop in plan.get_loops(sums)[len(outer) :][: len(spans)]] != spans:
        return "not all sums are read, since bounds prove results to be constant"
    plan.annotate(sums, Hint.TILES, list(astuple(tiling)))
    parallelize(plan, outer)
    stored, lane = epilogue
    plan.vectorize(lane)
    plan.unroll(stored)
    return ""


def _split(
    plan: Any, sums: Any, positions: Sequence[Any], channel: Any, tiling: TileTiling, around: Sequence[int]
) -> tuple[list[Any], tuple[Any, Any]]:
    """The output's loops outside of a tiling, whichever operand they walk once, and the last two within it: over the
    vectors that are stored after each other, and over the lanes of one."""
    spatial, reduction = split_loops(plan, sums)
    depth, all_blocks = product(plan, reduction), extent(plan, spatial[-2])
    *rows, line, position = positions
    weights, data = all_blocks * ROWS * depth, math.prod(around) * depth
    blocks = tiling.blocks // int(plan.get(sums).annotations[Hint.PARTS])
    pair, stored_blocks = blocks_per_vector(blocks, 1), math.gcd(blocks, STORED)
    block, lane = plan.split(channel, [None, pair * ROWS])
    outer_blocks, inner_blocks, stored = plan.split(block, [None, blocks // stored_blocks, stored_blocks // pair])
    outer_lines, inner_lines = plan.split(line, [None, tiling.lines])
    outer_positions, inner_positions = plan.split(position, [None, tiling.positions])
    places = [*rows, outer_lines, outer_positions]
    outer = [outer_blocks, *places] if weights > max(data, FAR_BYTES) else [*places, outer_blocks]
    plan.reorder(*outer, inner_blocks, inner_lines, inner_positions, stored, lane)
    return outer, (stored, lane)


def _refused(block: Any, around: Sequence[int]) -> str:
    """Why tiles do not serve a block of sums; nothing where they do. around: the lengths of the output's positions."""
    if not around:
        return "the result has no positions"
    if VPDPBUSD_512.llvm not in str(block.annotations[Hint.DOT]):
        return "products are not of bytes"
    dots = DotBlock(block)
    if dots.pitch(dots.positions):
        return "groups of channels read data of their own"
    if min(_width(dots), around[-1]) < FEWEST:
        return f"fewer than {FEWEST} positions or dots are in a row"
    if _dots_of_sum(dots) < SHALLOW:
        return f"a sum has fewer than {SHALLOW} dots"
    return ""


def _width(dots: DotBlock) -> int:
    """Dots in a row of a tile of data."""
    run, _ = dots.run
    return max(n for n in divisors(run) if n <= ROWS)


def _dots_of_sum(dots: DotBlock) -> int:
    return math.prod(dots.lengths[dots.positions + 2 : -1])


def _tilings(block: Any, around: Sequence[int]) -> list[TileTiling]:
    """What fits the first cache, what takes least time by a rough count first. around: as in `_refused`."""
    dots, parts = DotBlock(block), int(block.annotations[Hint.PARTS])
    width, blocks, dots_of_sum = _width(dots), dots.lengths[dots.positions], _dots_of_sum(dots)
    # Neighbouring blocks are multiplied by the same data, which is that of one group.
    together = int(block.annotations[Hint.GROUP_BLOCKS]) // parts
    lines, positions = around[-2] if len(around) > 1 else 1, around[-1]
    pitch = dots.lengths[dots.positions - 1]
    line_pitch, position_pitch = (dots.pitch(axis) for axis in (max(dots.positions - 2, 0), dots.positions - 1))
    found: list[tuple[float, int, TileTiling]] = []
    for inner in divisors(positions):
        for inner_lines in divisors(lines) if inner == positions else [1]:
            for joined in {0, pitch if inner_lines > 1 and line_pitch == pitch * position_pitch else 0}:
                length = (inner_lines - 1) * joined + inner
                rows = -(-length // -(-length // ROWS))
                for held in (n * parts for n in divisors(together)):
                    if inner_lines * max(inner, joined) * held * ROW_BYTES <= SUMS_BYTES:
                        tiling = TileTiling(inner_lines, inner, held, rows, width, joined)
                        times = (lines // inner_lines) * (positions // inner) * (blocks // held)
                        found.append((times * _time(tiling, dots_of_sum // width), len(found), tiling))
    return [tiling for _, _, tiling in sorted(found)]


def _time(tiling: TileTiling, steps: int) -> float:
    """In rows of products: in each step of the reduction products, or all loads from the first cache if these take
    longer, and what comes there from the second; in the end reading the sums."""
    tiles, blocks = tiling.tiles, tiling.blocks
    loads = tiles * -(-blocks // REGISTERS) + blocks * -(-tiles // REGISTERS)
    sums = tiling.lines * max(tiling.positions, tiling.joined) * blocks
    late = FAR_SUM * sums if sums * ROW_BYTES > SUMS_BYTES // 2 else 0
    return steps * (max(tiles * blocks * ROWS, loads * LOAD) + (tiles + blocks) * FETCH) + late
