"""Depthwise convolutions of groups of blocks of channels, whose sums are stored as bytes as soon as they are complete.

Rows fill vectors of bytes. Two of them are unpacked into each other, and then two such pairs, so that each lane holds a
column. That leaves lanes in the order of `turned`, which packing the sums to bytes undoes: no byte is permuted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import s_tir, sym, tirx

from mrt.backend.kernels.generic.lower_blocks import KernelPass, lower_loops, statement_block, without_marks
from mrt.backend.kernels.x86.avx512.multiply_high import LANES
from mrt.backend.kernels.x86.avx512.packed_store import PackedTile
from mrt.backend.kernels.x86.avx512.requantize_int16 import TURN
from mrt.backend.kernels.x86.depthwise_strip import BYTES, GROUP, Place, Strip, beginning, turned
from mrt.backend.memory.storage import VECTOR
from mrt.backend.te.stages import Hint
from mrt.backend.tir.expressions import Expression, constant, ravel, shuffled, substitute
from mrt.backend.tir.statements import (
    bound,
    loop_around,
    plain_block,
    sequence,
    serial,
    taken_apart,
    vectorized,
    whole_region,
)
from mrt.symbol.passes import Property

Parts = tuple[tuple[int, int], ...]
"""What the parts of a vector of a row are of: a position behind the first one, and a block of channels."""
WHOLE: Parts = ((0, 0), (0, 1), (0, 2), (0, 3))
"""Four blocks of a position."""
HALF: Parts = ((0, 0), (0, 1), (1, 0), (1, 1))
"""Two blocks of two positions."""
TURNED = tuple(
    tuple(GROUP * GROUP * part + place for part, place in (turned(vector, lane) for lane in range(GROUP * GROUP)))
    for vector in range(GROUP)
)
"""For each vector of sums, which elements of four parts that follow each other are in its lanes."""


@dataclass(frozen=True)
class ColumnGroups(KernelPass):
    """Marked loops over strips, which hold sums over columns and the loops that store these.

    The sums are [n, y, x, block, lane, row, column] of a group of blocks; the loops that store them go over lines,
    positions, blocks and lanes.
    """

    marks: ClassVar[tuple[str, ...]] = (Hint.COLUMN_GROUPS,)
    ensures: ClassVar[tuple[Property, ...]] = (without_marks(Hint.COLUMN_GROUPS),)

    def lower(self, function: Any) -> Any:
        return lower_loops(function, Hint.COLUMN_GROUPS, _strips)


def _strips(loop: Any) -> Any:
    """The loop over strips of a whole group, or else over those of the blocks that remain."""
    summed, stored = map(taken_apart, loop.body.seq)
    blocks, positions = int(summed[1].block.iter_vars[3].dom.extent), int(summed[0][2].extent)
    first, rest = beginning(*summed)[3], blocks % GROUP
    whole = loop_around(loop, _strip(summed, stored, WHOLE, 0), marks={})
    if not rest:
        return whole
    again = tirx.Var("strip", "int32")
    summed, stored = ((loops, _with(realize, loop.loop_var, again)) for loops, realize in (summed, stored))
    remaining = serial(again, loop.extent, sequence(_strip(summed, stored, *each) for each in _last(rest, positions)))
    return tirx.IfThenElse(first < blocks - rest, whole, remaining) if blocks > rest else remaining


def _last(blocks: int, positions: int) -> Iterator[tuple[Parts, int]]:
    """How blocks that fill no vector are summed, and the first one of each time: in halves, or one by one."""
    in_halves = 0 if positions % 2 else blocks // 2 * 2
    yield from ((HALF, block) for block in range(0, in_halves, 2))
    yield from (((), block) for block in range(in_halves, blocks))


Nest = tuple[Sequence[Any], Any]
"""Loops, and the realization of a block within."""


def _with(realize: Any, variable: Any, value: Expression) -> Any:
    values = substitute(realize.iter_values, [variable], [value])
    return s_tir.SBlockRealize(values, realize.predicate, realize.block)


def _strip(summed: Nest, stored: Nest, parts: Parts, block: int) -> Any:
    """A strip of some blocks of a group, the first of which is `block`; of this one alone if there are no parts."""
    (loops, realize), (around, store) = summed, stored
    lengths, base, step = [int(loop.extent) for loop in loops], beginning(loops, realize), _positions(parts)
    base[3] = base[3] + block
    variable, vectors = around[2].loop_var, max(len(parts), 1)
    held = _local("sums", lengths[1], lengths[2] // step, vectors, lengths[4])
    start = _local("start", GROUP // step, lengths[4])
    within = around, _with(store, variable, variable + block), held
    if parts:
        strip: Strip = _GroupStrip(realize.block, base, lengths, held, start, parts)
        tile: _BlockTile = _GroupTile(*within, parts)
    else:
        strip, tile = Strip(realize.block, base, lengths, held), _BlockTile(*within)
    region = whole_region(held)
    made = statement_block("columns", [*strip.reads, *tile.reads], region, _merged(strip, tile), region, tile.stored)
    return plain_block("strip", made, [held, start] if parts else [held])


def _local(name: str, *shape: int) -> Any:
    return tirx.decl_buffer(shape, "int32", name)


def _positions(parts: Parts) -> int:
    """How many positions are summed at once."""
    return max((position for position, _ in parts), default=0) + 1


def _merged(strip: Strip, tile: PackedTile) -> Iterator[Any]:
    """The statements of both: what is stored of sums follows the last one that adds to them."""
    summed = list(strip.statements())
    last = {place: number for number, (place, _) in enumerate(summed)}
    stores: dict[int, list[Any]] = {}
    for places, made in tile.statements():
        stores.setdefault(max(last[place] for place in places), []).extend(made)
    for number, (_, statement) in enumerate(summed):
        yield statement
        yield from stores.get(number, [])


class _GroupStrip(Strip):
    """Sums of a whole group, or of half of one at two positions, in the order of `turned`.

    start: a buffer [block, lane] for what sums begin with, in the order of channels.
    """

    def __init__(
        self, block: Any, base: Sequence[Expression], lengths: Sequence[int], held: Any, start: Any, parts: Parts
    ) -> None:
        super().__init__(block, base, lengths, held, GROUP, _positions(parts))
        self._parts, self._natural = parts, start

    def statements(self) -> Iterator[tuple[Place | None, Any]]:
        for block in range(int(self._natural.shape[0])):
            lane = tirx.Var("lane", "int32")
            at = [constant(block, "int32"), lane]
            store = tirx.BufferStore(self._natural, self._beginning(block, lane), at)
            yield None, vectorized(lane, self._lanes, store)
        yield from super().statements()

    def _initialized(self, place: Place) -> Any:
        lanes = tirx.Ramp(constant(0, "int32"), 1, self._lanes)
        held = [tirx.BufferLoad(self._natural, [constant(block, "int32"), lanes]) for _, block in self._parts]
        buffer, at = self._memory(place, lanes)
        return tirx.BufferStore(buffer, shuffled(held, TURNED[place[2]]), at)

    def _joined(self, first: int, x: int, column: int, vectors: range) -> tuple[Sequence[Any], Sequence[Any]]:
        """Rows are unpacked into each other by two, then the pairs of these."""
        held = [list(self._rows(first, x * self._step + i, column, GROUP // self._step)) for i in range(self._step)]
        rows = [bound("row", tirx.reinterpret(BYTES, _following(each))) for each in zip(*held, strict=True)]
        # Where there are no more rows the weights are 0.
        whole = [*rows, *rows[-1:] * (GROUP - len(rows))]
        bindings, columns = rows, []
        for half in sorted({vector // 2 for vector in vectors}):
            pairs = [bound("pair", _unpacked(whole[i].var, whole[i + 1].var, half)) for i in (0, 2)]
            wide = [tirx.reinterpret("int16x32", each.var) for each in pairs]
            made = [bound("column", tirx.reinterpret(BYTES, _unpacked(wide[0], wide[1], each))) for each in range(2)]
            bindings = [*bindings, *pairs, *made]
            columns += [each.var for each in made]
        return bindings, columns

    def _factor(self, vector: int, dot: int, column: int) -> Expression:
        """Whole groups lie so; of a half it is made of both blocks."""
        if self._step == 1:
            return super()._factor(vector, dot, column)
        lane = constant(vector * GROUP, "int32")
        held = [self._weights(self.base[3] + block, dot, column, lane, GROUP) for _, block in self._parts]
        return _following(held)


def _following(vectors: Sequence[Expression]) -> Expression:
    """The elements of vectors one after the other."""
    count = sum(int(each.ty.dtype.lanes) for each in vectors)
    return vectors[0] if len(vectors) == 1 else shuffled(vectors, range(count))


def _unpacked(first: Expression, second: Expression, half: int) -> Expression:
    """The lower or the upper half of each part of two vectors, unpacked into each other: what one instruction does."""
    count = int(first.ty.dtype.lanes)
    each = count // GROUP // 2
    ones = [start + i for start in range(half * each, count, 2 * each) for i in range(each)]
    return shuffled([first, second], [place for one in ones for place in (one, count + one)])


class _BlockTile(PackedTile):
    """Bytes of sums in a buffer [line, position, vector, lane], in loops over lines, positions, blocks and lanes."""

    def __init__(self, loops: Sequence[Any], realize: Any, held: Any) -> None:
        super().__init__(loops, realize, 1)
        self._held, self._adjacent = held, False

    def _pairs(self) -> Iterator[tuple[Place, Place]]:
        """In the order in which sums are complete."""
        lines, positions, vectors, _ = map(int, self._held.shape)
        places = [(y, x, vector) for x in range(positions) for y in range(lines) for vector in range(vectors)]
        for first in range(0, len(places), 2):
            yield places[first], places[min(first + 1, len(places) - 1)]

    def _sums(self, x: Expression, place: Place) -> Expression:
        lanes = tirx.Ramp(constant(0, "int32"), 1, VECTOR)
        return tirx.BufferLoad(self._held, [*(constant(i, "int32") for i in place), lanes])


class _GroupTile(_BlockTile):
    """The same of sums in the order of `turned`."""

    def __init__(self, loops: Sequence[Any], realize: Any, held: Any, parts: Parts) -> None:
        super().__init__(loops, realize, held)
        self._parts = parts

    def statements(self) -> Iterator[tuple[list[Place], Iterator[Any]]]:
        """The int16s of the first two vectors are made as soon as these are complete."""
        pairs = list(self._pairs())
        for first, second in zip(pairs[::2], pairs[1::2], strict=True):
            int16s = self._bind("int16s", self._int16s(*first))
            yield list(first), iter(self._with_bindings(()))
            yield list(second), iter(self._with_bindings(self._stored_with(int16s, second)))

    def _stored_with(self, int16s: Any, pair: tuple[Place, Place]) -> Iterator[Any]:
        """Stores the bytes of int16s and of two vectors, at once where positions follow each other in memory."""
        joined = self._bind("packed", self._expression.bytes([int16s, self._int16s(*pair)]))
        count, places = 2 * LANES, self._of_parts(pair[0])[:: GROUP // _positions(self._parts)]
        flat = [ravel(self._index(self._store.indices, place, 0), self._store.buffer.shape) for place in places]
        if sym.Analyzer().simplify(flat[-1] - flat[0] - count // 2) == 0:
            places = places[:1]
        each = count // len(places)
        for number, place in enumerate(places):
            value = shuffled([joined], range(number * each, (number + 1) * each)) if len(places) > 1 else joined
            yield tirx.BufferStore(self._store.buffer, value, self._run(self._store.indices, place, each))

    def _factor(self, value: Expression, place: Place) -> Expression:
        return shuffled([self._vector(value, each) for each in self._of_parts(place)], TURNED[place[-1]])

    def _interleaved(self, value: Expression, first: Place, second: Place) -> Expression:
        both = [TURNED[place[-1]] for place in (first, second)]
        turns = [each for at in range(0, VECTOR, TURN) for held in both for each in held[at : at + TURN]]
        return shuffled([self._vector(value, each) for each in self._of_parts(first)], turns)

    def _of_parts(self, place: Place) -> list[Place]:
        """Of which places of the loops the parts of a place of the sums are."""
        y, x, _ = place
        step = _positions(self._parts)
        return [(y, x * step + position, block) for position, block in self._parts]
