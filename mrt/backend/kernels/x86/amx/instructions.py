"""The instructions on tile registers: loads, products and stores of a block of dots that `tiles.py` scheduled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from tvm import ir, tirx
from tvm.tirx.op import address_of

from mrt.backend.kernels.generic.lower_blocks import KernelPass, lower_blocks, statement_block, without_marks
from mrt.backend.kernels.x86.amx.tiles import DOT_BYTES, REGISTERS, ROW_BYTES, DotBlock, TileTiling
from mrt.backend.machine import TILE_REQUEST
from mrt.backend.te.stages import Hint
from mrt.backend.tir.expressions import Expression, constant, substitute
from mrt.backend.tir.statements import plain_block, sequence, serial, with_root
from mrt.symbol.passes import Property

SUMS, DATA, WEIGHTS = (0, 1, 2, 3), (4, 5), (6, 7)
"""Which tile registers hold what: two tiles of data and two of weights make four of sums."""


@dataclass(frozen=True)
class AmxTiles(KernelPass):
    """The loops of the block that `tile_dots` scheduled, as instructions on tiles."""

    marks: ClassVar[tuple[str, ...]] = (Hint.TILES,)
    ensures: ClassVar[tuple[Property, ...]] = (without_marks(Hint.TILES),)

    def lower(self, function: Any) -> Any:
        tilings: list[TileTiling] = []

        def instructions(loops: Sequence[Any], realize: Any) -> Any:
            tilings.append(TileTiling(*(int(number) for number in realize.block.annotations[Hint.TILES])))
            return _instructions(loops, realize, tilings[-1])

        made = lower_blocks(function, Hint.TILES, instructions)
        (tiling,) = tilings
        return _configured(made, tiling).with_attr(Hint.TILES, True)


def needs_tiles(function: Any) -> bool:
    """Whether a function is one that `AmxTiles` made, which runs after `tile_request` only."""
    return bool(function.attrs) and Hint.TILES in function.attrs


def tile_request() -> Any:
    """A PrimFunc that asks the operating system for tile registers, for the whole process.

    It stores 0 in the int32 that it takes, or something else where there are none.
    """
    answer = tirx.decl_buffer((1,), "int32", "answer")
    asked = tirx.call_extern("int64", "syscall", *(constant(number, "int64") for number in TILE_REQUEST))
    # Without the mark LLVM would take all tensors of the whole module to overlap.
    return tirx.PrimFunc([answer], tirx.BufferStore(answer, asked.astype("int32"), [constant(0, "int32")])).with_attr(
        "tirx.noalias", True
    )


def _configured(function: Any, tiling: TileTiling) -> Any:
    """The function with tiles that are configured before its loops, once by each thread that runs them."""
    words = np.array(_configuration(tiling), np.uint8).view("<i8")
    root, held = function.body.block, tirx.decl_buffer(words.shape, "int64", "configuration")
    first = address_of(tirx.BufferLoad(held, [constant(0, "int32")]))
    stores = [tirx.BufferStore(held, constant(int(word), "int64"), [i]) for i, word in enumerate(words)]
    body = sequence([*stores, _call("ldtilecfg", first), root.body, _call("tilerelease")])
    body = plain_block("configured", body, [held])
    if isinstance(root.body, tirx.For) and root.body.kind == tirx.ForKind.PARALLEL:
        # Threads start here, and share the turns of the loop within.
        body = tirx.AttrStmt(constant(0, "int32"), "pragma_parallel_launch_point", constant(1, "int32"), body)
    return with_root(function, body)


def _configuration(tiling: TileTiling) -> list[int]:
    """The 64 bytes that `ldtilecfg` takes: palette 1, the bytes of a row of each tile, the rows of each tile."""
    palette, row_bytes, rows = [1] + [0] * 15, [0] * 32, [0] * 16
    for tiles, count, width in (
        (SUMS, tiling.rows, ROW_BYTES),
        (DATA, tiling.rows, tiling.dots * DOT_BYTES),
        (WEIGHTS, tiling.dots, ROW_BYTES),
    ):
        for tile in tiles:
            row_bytes[2 * tile], rows[tile] = width, count
    return palette + row_bytes + rows


def _instructions(loops: Sequence[Any], realize: Any, tiling: TileTiling) -> Any:
    """What the loops around a block of dots do, by instructions."""
    zero = constant(0, "int32")
    base = substitute(realize.iter_values, [loop.loop_var for loop in loops], [zero] * len(loops))
    dots = DotBlock(realize.block)
    spans = tiling.spans(dots.positions)
    spans[dots.positions - 1] = max(tiling.positions, tiling.joined)
    written = [ir.Range.from_min_extent(*pair) for pair in zip(base[: len(spans)], spans, strict=True)]
    region = tirx.BufferRegion(dots.sums, written)
    statements = _Instructions(dots, tiling, base).statements()
    return statement_block("tiles", [dots.data.source, dots.weights.source], region, statements)


@dataclass(frozen=True)
class _Part:
    """`count` neighbours from `first` on, in a loop of `variable` where that is more than a number."""

    first: Expression
    count: int
    variable: Any = None
    times: int = 1

    @classmethod
    def cut(cls, total: int, count: int, name: str) -> list[_Part]:
        """All of `total`, `count` at a time, and what is left over."""
        parts, times = [], total // count
        if times:
            variable = tirx.Var(name, "int32")
            parts.append(cls(variable * count, count, variable, times))
        if total % count:
            parts.append(cls(constant(times * count, "int32"), total % count))
        return parts

    def loop(self, body: Any) -> Any:
        return body if self.variable is None else serial(self.variable, self.times, body)


class _Instructions:
    """Writes the instructions of one block. base: the index of its axes at which it begins."""

    def __init__(self, dots: DotBlock, tiling: TileTiling, base: Sequence[Expression]) -> None:
        self._dots, self._tiling, self._base = dots, tiling, base

    def statements(self) -> Iterator[Any]:
        """For some blocks of output channels at a time, all tiles of positions, some at a time."""
        for blocks in _Part.cut(self._tiling.blocks, REGISTERS, "block"):
            parts = _Part.cut(self._tiling.tiles, REGISTERS, "tile")
            yield blocks.loop(sequence(tiles.loop(sequence(self._products(tiles, blocks))) for tiles in parts))

    def _products(self, tiles: _Part, blocks: _Part) -> Iterator[Any]:
        """All dots of some tiles of positions and some blocks of output channels, whose sums stay in registers."""
        dots, tiling = self._dots, self._tiling
        run, first = dots.run
        step = tirx.Var("step", "int32")
        taps = {axis: tirx.Var(f"tap{axis}", "int32") for axis in dots.taps if axis < first and dots.lengths[axis] > 1}
        reduced = taps | {len(dots.variables) - 2: step * tiling.dots}
        starts = [tiling.place(tiles.first + i) for i in range(tiles.count)]
        sums = {(i, j): SUMS[i * blocks.count + j] for i in range(tiles.count) for j in range(blocks.count)}
        body = []
        for j in range(blocks.count):
            place = dots.index(dots.weights, self._index(starts[0], blocks.first + j, reduced))
            body.append(_load(WEIGHTS[j], dots.weights.source, place, ROW_BYTES))
            for i, start in enumerate(starts):
                if j == 0:
                    place = dots.index(dots.data, self._index(start, blocks.first, reduced))
                    body.append(_load(DATA[i], dots.data.source, place, dots.pitch(dots.positions - 1)))
                body.append(_call("tdpbusd", _tile(sums[i, j]), _tile(DATA[i]), _tile(WEIGHTS[j])))
        looped = serial(step, run // tiling.dots, sequence(body), Hint.PREFETCH_NEXT)
        for axis, tap in reversed(taps.items()):
            looped = serial(tap, dots.lengths[axis], looped)
        yield from (_call("tilezero", _tile(tile)) for tile in sums.values())
        yield looped
        for (i, j), tile in sums.items():
            held = tirx.BufferLoad(dots.sums, self._index(starts[i], blocks.first + j, {})[: dots.positions + 2])
            yield _call("tilestored64", _tile(tile), address_of(held), constant(tiling.blocks * ROW_BYTES, "int64"))

    def _index(
        self, start: tuple[Expression, Expression], block: Expression, reduced: dict[int, Expression]
    ) -> list[Expression]:
        """The index of the block's axes at the first element of a tile."""
        index, positions = list(self._base), self._dots.positions
        index[positions] = index[positions] + block
        index[positions - 1] = index[positions - 1] + start[1]
        if positions > 1:
            index[positions - 2] = index[positions - 2] + start[0]
        for axis, value in reduced.items():
            index[axis] = value
        return index


def _load(tile: int, source: Any, index: Sequence[Expression], pitch: int) -> Any:
    return _call("tileloadd64", _tile(tile), address_of(tirx.BufferLoad(source, list(index))), constant(pitch, "int64"))


def _tile(number: int) -> Expression:
    return constant(number, "int8")


def _call(name: str, *arguments: Any) -> Any:
    # The instructions give nothing; a call needs a dtype all the same.
    return tirx.Evaluate(tirx.call_llvm_intrin("int32", f"llvm.x86.{name}", *arguments))
