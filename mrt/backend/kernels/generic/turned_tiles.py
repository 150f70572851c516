"""Copies that exchange axes: tiles of neighbours along both are turned in registers, where LLVM would take elements one
by one.

Where a tensor is read along one axis and written along another, neighbours in a row that is written are far from each
other in what is read. So as many vectors as a tile is wide are loaded, and `turned` into those that are stored. The
last tile along an axis shares elements with the one before it where tiles do not divide the axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import s_tir, tirx

from mrt.backend.kernels.generic.lower_blocks import KernelPass, lower_blocks, marks_but, statement_block, without_marks
from mrt.backend.kernels.generic.turn import Turn, padding, turn_within
from mrt.backend.kernels.generic.turned_rows import turned
from mrt.backend.schedule.loops import parallelize
from mrt.backend.te.stages import Hint
from mrt.backend.tir.expressions import Expression, constant, dtype_of, replaced, substitute
from mrt.backend.tir.statements import bound, nested, plain_block, sequence, serial, unrolled, vectorized, whole_region
from mrt.symbol.passes import Property


def schedule_turned(plan: Any, block: Any, turn: Turn) -> None:
    """The loop along the memory that is read is the last but one, in tiles where these divide it."""
    loops: list[Any] = []
    for loop, parts in zip(plan.get_loops(block), turn.parts, strict=True):
        loops += plan.split(loop, list(parts)) if len(parts) > 1 else [loop]
    row, written = loops[turn.row], loops[-1]
    others = [*loops[: turn.row], *loops[turn.row + 1 : -1]]
    if turn.lengths[turn.row] % turn.rows == 0:
        tiles, row = plan.split(row, [None, turn.rows])
        others.append(tiles)
    plan.reorder(*others, row, written)
    plan.annotate(block, Hint.TURNED, 1)
    parallelize(plan, others)


@dataclass(frozen=True)
class TurnedTiles(KernelPass):
    """The two innermost loops around a block go over tiles, which are turned in registers."""

    marks: ClassVar[tuple[str, ...]] = (Hint.TURNED,)
    ensures: ClassVar[tuple[Property, ...]] = (without_marks(Hint.TURNED),)

    def lower(self, function: Any) -> Any:
        return lower_blocks(function, Hint.TURNED, _in_tiles)


def _in_tiles(loops: Sequence[Any], realize: Any) -> Any:
    turn = turn_within(loops[-2:], realize, loops[:-2])
    if turn is None:
        raise ValueError("a block is marked as turned, and reads nothing across what it writes")
    return nested(loops[:-2], _Tiles(turn, loops[-2:], realize).statement())


class _Tiles:
    """The tiles of two loops around a block."""

    def __init__(self, turn: Turn, loops: Sequence[Any], realize: Any) -> None:
        self._turn, self._realize = turn, realize
        self._variables = [loop.loop_var for loop in loops]
        self._lengths = (int(loops[0].extent), turn.count)
        self._padding = int(loops[1].extent) - turn.count
        self._tile = tirx.decl_buffer((turn.rows, turn.width), dtype_of(turn.load), "turned")

    def statement(self) -> Any:
        sizes = (self._turn.rows, self._turn.width)
        tiles = [tirx.Var(name, "int32") for name in ("row_tile", "tile")]
        first = [_first(*each) for each in zip(tiles, self._lengths, sizes, strict=True)]
        body = serial(tiles[1], -(-self._lengths[1] // sizes[1]), sequence([self._turned(first), self._stored(first)]))
        if self._padding:
            body = sequence([body, self._padded(first[0])])
        return plain_block("tiles", serial(tiles[0], -(-self._lengths[0] // sizes[0]), body), [self._tile])

    def _turned(self, first: Sequence[Expression]) -> Any:
        """Fills the tile with [row, place] of what is read."""
        load, rows, width = self._turn.load, self._turn.rows, self._turn.width
        own = [axis.var for axis in self._realize.block.iter_vars]
        statements = []
        for place in range(width):
            at = substitute(self._realize.iter_values, self._variables, [first[0], first[1] + place])
            *outer, last = substitute(load.indices, own, at)
            statements.append(bound("taken", tirx.BufferLoad(load.source, [*outer, tirx.Ramp(last, 1, rows)])))
        for row, vector in enumerate(turned([statement.var for statement in statements])):
            at = [constant(row, "int32"), tirx.Ramp(constant(0, "int32"), 1, width)]
            statements.append(tirx.BufferStore(self._tile, vector, at))
        whole = whole_region(self._tile)
        return statement_block("turn", [load.source], whole, statements)

    def _stored(self, first: Sequence[Expression]) -> Any:
        """What the block stores, of what the tile holds."""
        block, rows, width = self._realize.block, self._turn.rows, self._turn.width
        within = [tirx.Var(name, "int32") for name in ("row", "place")]
        value = block.body.value if padding(block.body.value) is None else block.body.value.args[1]
        value = replaced(value, self._turn.load, tirx.BufferLoad(self._tile, within))
        made = self._realized([a + b for a, b in zip(first, within, strict=True)], value)
        return unrolled(within[0], rows, vectorized(within[1], width, made))

    def _padded(self, first: Expression) -> Any:
        """The padding behind a tile's rows."""
        row, place = tirx.Var("row", "int32"), tirx.Var("place", "int32")
        value = padding(self._realize.block.body.value)
        made = self._realized([first + row, place + self._turn.count], value)
        return serial(row, self._turn.rows, serial(place, self._padding, made))

    def _realized(self, at: Sequence[Expression], value: Expression) -> Any:
        """The block at places of the two loops, storing `value`."""
        block = self._realize.block
        made = s_tir.SBlock(
            block.iter_vars,
            block.reads,
            block.writes,
            block.name_hint,
            tirx.BufferStore(block.body.buffer, value, block.body.indices),
            annotations=marks_but(block, Hint.TURNED),
        )
        return s_tir.SBlockRealize(substitute(self._realize.iter_values, self._variables, at), True, made)


def _first(tile: Any, length: int, size: int) -> Expression:
    """The first place of a tile: that of the last one is so that it ends with the loop."""
    return tile * size if length % size == 0 else tirx.min(tile * size, constant(length - size, "int32"))
