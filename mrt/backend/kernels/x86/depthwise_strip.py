"""The sums of a strip of a depthwise convolution, written statement by statement: some positions of some lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

from tvm import ir, tirx

from mrt.backend.kernels.dot_instruction import DotInstruction
from mrt.backend.kernels.generic.lower_blocks import KernelPass, lower_blocks, statement_block, without_marks
from mrt.backend.kernels.generic.sum_block import SumBlock
from mrt.backend.kernels.x86.avx2 import dots as avx2
from mrt.backend.kernels.x86.avx512 import dots as avx512
from mrt.backend.kernels.x86.vnni import dots as vnni
from mrt.backend.te.stages import Hint
from mrt.backend.tir.expressions import Expression, constant, llvm_call, shuffled, substitute
from mrt.backend.tir.statements import bound, vectorized
from mrt.symbol.passes import Property

LANE = 32
"""Bits of a lane, which the taps of a dot fill."""
BYTES = "int8x64"
"""The vectors in which bytes are permuted."""
PERMUTE = "llvm.x86.avx512.permvar.qi.512"
"""Puts bytes next to each other, by places that LLVM finds in memory only: of those that it knows it makes shuffles of
two vectors, which take three operations instead of one."""
GROUP = 4
"""Blocks of channels that are summed at once, since their bytes fill a vector. A vector also has as many parts, within
which elements are unpacked, a part as many lanes, and a lane as many bytes."""
COLUMN_DOTS: tuple[DotInstruction, ...] = (*vnni.DOTS, *avx512.DOTS, *avx2.DOTS)

Place = tuple[int, ...]
"""Of a vector of sums within a strip: its line, its position, or several at once, and which of their vectors it is."""


def has_groups(lanes: int, depth: int) -> bool:
    """Whether blocks of so many lanes, each of which holds so many rows, are of groups where there are enough."""
    return lanes == GROUP * GROUP and depth == GROUP


def turned(block: Any, lane: Any) -> tuple[Any, Any]:
    """The block and the lane of a group in whose place there is one that was unpacked, and the other way round.

    Elements stay in their part of a vector, and each part gives some to every block.
    """
    return lane // GROUP, block * GROUP + lane % GROUP


@dataclass(frozen=True)
class Rows:
    """The rows of a window, which dots take `depth` at a time.

    step: how many rows of the window the line below is further down; 0 where it reads rows between them.
    """

    count: int
    step: int
    depth: int

    @classmethod
    def of(cls, count: int, stride: int, dilation: int, depth: int) -> Rows:
        """stride, dilation: from a line to the next, and from a row of the window to the next, in any unit."""
        return cls(count, 0 if stride % dilation else stride // dilation, depth)

    def dots(self, before: int = 0) -> int:
        """Of a column whose first rows, so many, are not of the window."""
        return -(-(before + self.count) // self.depth)

    @property
    def before(self) -> int:
        """Of the first rows that are put together for the line below, those that are not of its window."""
        return self.step % self.depth

    @property
    def may_pair(self) -> bool:
        """Whether two lines are summed together: columns made for both are fewer, and no dots more."""
        shared = self.step > 0 and self.dots(self.step) < 2 * self.dots()
        return shared and self.dots(self.before) == self.dots()


@dataclass(frozen=True)
class DepthwiseDots(KernelPass):
    """The sums over columns by dots."""

    marks: ClassVar[tuple[str, ...]] = (Hint.COLUMNS,)
    ensures: ClassVar[tuple[Property, ...]] = (without_marks(Hint.COLUMNS),)

    def lower(self, function: Any) -> Any:
        return lower_blocks(function, Hint.COLUMNS, _strip)


def _strip(loops: Sequence[Any], realize: Any) -> Any:
    strip = Strip.of(loops, realize)
    # TVM looks through what an index is made of at every access, which took most of the time to compile wide windows.
    named = [bound("at", index) for index in strip.base]
    inner = strip.at([each.var for each in named])
    return statement_block("columns", strip.reads, strip.summed, [*named, *(made for _, made in inner.statements())])


class Columns(SumBlock):
    """Sums over the columns of windows; the block's axes are [n, y, x, block, lane, row, column]."""

    def __init__(self, block: Any) -> None:
        super().__init__(block)
        self.in_groups = Hint.IN_GROUPS in block.annotations
        """Whether blocks of whole groups hold weights of each other, see `turned`."""

    @cached_property
    def rows(self) -> Rows:
        return Rows.of(self.lengths[5], self.pitch(1), self.pitch(5), int(self.weights.source.shape[-1]))

    @property
    def grouped(self) -> int:
        """How many blocks are in whole groups, the first ones."""
        return self.lengths[3] // GROUP * GROUP if self.in_groups else 0

    def readers(self, positions: int, step: int = 1) -> dict[int, list[tuple[int, int]]]:
        """By the column of the data, all (position of a strip, column of its window) that read it.

        step: how many positions of the line are from one to the next.
        """
        found: dict[int, list[tuple[int, int]]] = {}
        position, tap = self.pitch(2) * step, self.pitch(6)
        for x in range(positions):
            for column in range(self.lengths[6]):
                found.setdefault(x * position + column * tap, []).append((x, column))
        return dict(sorted(found.items()))


class Strip(Columns):
    """Sums of some lines of some positions each, for one block of channels.

    base: the index of the block's axes at which it begins. lengths: how far it reaches along each. held: a buffer
    [line, position, vector, lane] of the sums, where they are not in that of the block. vectors: how many of sums are
    made of a column at once; step: of how many positions these are.
    """

    def __init__(
        self,
        block: Any,
        base: Sequence[Expression],
        lengths: Sequence[int],
        held: Any = None,
        vectors: int = 1,
        step: int = 1,
    ) -> None:
        super().__init__(block)
        self.base, self._start, self._held = base, block.init.value, held
        self._block, self._lengths = block, lengths
        self._lines, self._positions, self._lanes = lengths[1], lengths[2] // step, lengths[4]
        self._vectors, self._step = vectors, step
        self._holders: dict[int, list[tuple[Expression, Expression]]] = {}
        name = str(block.annotations[Hint.COLUMNS])
        (self._instruction,) = {each for each in COLUMN_DOTS if each.llvm == name}
        self._permutes = int(self.weights.source.shape[0]) > self.lengths[3]

    @classmethod
    def of(cls, loops: Sequence[Any], realize: Any) -> Strip:
        """Of the loops around the block of the sums; ValueError if they are not those of a strip."""
        lengths = [int(loop.extent) for loop in loops]
        if len(lengths) != 7 or lengths[0] != 1 or lengths[3] != 1:
            raise ValueError("columns are not read strip by strip")
        return cls(realize.block, beginning(loops, realize), lengths)

    def at(self, base: Sequence[Expression]) -> Strip:
        """The same that begins elsewhere."""
        return Strip(self._block, base, self._lengths)

    @property
    def reads(self) -> list[Any]:
        """The buffers that are read, but that of the sums."""
        return [self.data.source, self.weights.source]

    @property
    def summed(self) -> Any:
        """The region of the sums in the block's buffer."""
        lengths = [1, self._lines, self._positions, 1, self._lanes]
        written = [ir.Range.from_min_extent(*pair) for pair in zip(self.base[:5], lengths, strict=True)]
        return tirx.BufferRegion(self.sums, written)

    def statements(self) -> Iterator[tuple[Place | None, Any]]:
        """Those that sum, and of which place each changes the sums.

        Of two lines half of the vectors are summed before the others, whose weights are in registers then.
        """
        for vector in range(self._vectors):
            yield from ((None, each) for each in self._hold(vector))
        at_once = max(self._vectors // self._lines, 1)
        for first in range(0, self._vectors, at_once):
            yield from self._columns(range(first, first + at_once))

    def _columns(self, vectors: range) -> Iterator[tuple[Place | None, Any]]:
        """Column by column of the data; each goes to all sums that it is part of, which the first one initializes.

        Columns and sums are variables, and a sum is stored with its last dot: all that accesses memory goes through all
        of TVM's passes, which took longer for sums stored with every dot than for all else.
        """
        rows, lines, begun = self.rows, range(self._lines), 0
        totals: dict[Place, list[Expression]] = {}
        for reading in self.readers(self._positions, self._step).values():
            reached = max(begun, *(x + 1 for x, _ in reading))
            for place in product(lines, range(begun, reached), vectors):
                yield place, self._initialized(place)
            begun = reached
            for number in range(rows.dots(rows.step * (self._lines - 1))):
                bindings, joined = self._joined(number * rows.depth, *reading[0], vectors)
                yield from ((None, each) for each in bindings)
                for (vector, made), (x, column), y in product(zip(vectors, joined, strict=True), reading, lines):
                    dot, place = number - y * (rows.step // rows.depth), (y, x, vector)
                    if 0 <= dot < rows.dots():
                        yield place, self._added(totals, place, self._factor_of(place, dot, column), made)

    def _axes(self, y: int, x: int, block: int, lane: Expression) -> list[Expression]:
        """The index of the block's axes at a line, a position and a block of channels."""
        return [self.base[0], self.base[1] + y, self.base[2] + x, self.base[3] + block, lane]

    def _memory(self, place: Place, lane: Expression) -> tuple[Any, list[Expression]]:
        """The buffer of the sums of a place, and where they are in it."""
        if self._held is None:
            return self.sums, self._axes(place[0], place[1], place[2], lane)
        return self._held, [*(constant(i, "int32") for i in place), lane]

    def _initialized(self, place: Place) -> Any:
        """Initializes the sums of a place."""
        lane = tirx.Var("lane", "int32")
        buffer, at = self._memory(place, lane)
        return vectorized(lane, self._lanes, tirx.BufferStore(buffer, self._beginning(place[2], lane), at))

    def _beginning(self, block: int, lane: Expression) -> Expression:
        """What sums of a channel begin with."""
        (start,) = substitute([self._start], self.variables, [*self._axes(0, 0, block, lane), *self.base[5:]])
        return start

    def _joined(self, first: int, x: int, column: int, vectors: range) -> tuple[Sequence[Any], Sequence[Any]]:
        """The elements of a column in each lane, from row `first` on, as the factors of the dots of some vectors.

        Gives statements that bind variables, and those of these that are the factors.
        """
        depth, held = self.rows.depth, list(self._rows(first, x, column, 1))
        # Where there are no more rows the weights are 0.
        if len(held) == 1 or (depth == 2 and not self._permutes):
            made = bound("column", self._widened(held))
        else:
            made = bound("column", self._interleaved([*held, *held[-1:] * (depth - len(held))]))
        return [made], [made.var]

    def _rows(self, first: int, x: int, column: int, blocks: int) -> Iterator[Expression]:
        """The elements of a column's rows for a dot, from row `first` on, of some blocks of channels."""
        rows = self.rows
        for row in range(first, min(first + rows.depth, rows.count + (self._lines - 1) * rows.step)):
            at = [*self._axes(0, x, 0, self.base[4]), constant(row, "int32"), constant(column, "int32")]
            *outer, channel = self.index(self.data, at)
            yield tirx.BufferLoad(self.data.source, [*outer, tirx.Ramp(channel, 1, blocks * self._lanes)])

    @property
    def _bits(self) -> int:
        """Of an element."""
        return LANE // self.rows.depth

    def _widened(self, held: Sequence[Expression]) -> Expression:
        """Each row in the lanes, shifted to its place: by less than shuffles take for one or two of them."""
        total: Expression = None
        for row, each in enumerate(held):
            lanes = tirx.reinterpret(f"uint{self._bits}x{self._lanes}", each).astype(f"uint{LANE}x{self._lanes}")
            if row:
                total = total | (lanes << tirx.Broadcast(constant(row * self._bits, f"uint{LANE}"), self._lanes))
            else:
                total = lanes
        return tirx.reinterpret(f"int{self._bits}x{self._lanes * self.rows.depth}", total)

    def _interleaved(self, held: Sequence[Expression]) -> Expression:
        """As many rows as a dot takes, by places of their bytes where vectors are permuted."""
        depth, count = self.rows.depth, self.rows.depth * self._lanes
        vectors = [tirx.reinterpret(f"int{self._bits}x{self._lanes}", each) for each in held]
        if not self._permutes:
            return shuffled(vectors, [row * self._lanes + lane for lane in range(self._lanes) for row in range(depth)])
        places = self._weight(constant(self.lengths[3], "int32"), 0, 0)
        following = tirx.reinterpret(BYTES, shuffled(vectors, range(count)))
        permuted = llvm_call(BYTES, PERMUTE, following, tirx.reinterpret(BYTES, places))
        return tirx.reinterpret(f"int{self._bits}x{count}", permuted)

    def _weight(self, block: Expression, dot: int, column: int) -> Expression:
        """A vector of weights for a dot of a column, as they lie."""
        return self._weights(block, dot, column, constant(0, "int32"), self._lanes)

    def _weights(self, block: Expression, dot: int, column: int, lane: Expression, count: int) -> Expression:
        """Those of some lanes."""
        zero = constant(0, "int32")
        at = [block, constant(dot, "int32"), constant(column, "int32"), lane]
        return tirx.BufferLoad(self.weights.source, [*at, tirx.Ramp(zero, 1, count * self.rows.depth)])

    def _factor(self, vector: int, dot: int, column: int) -> Expression:
        """The weights for a dot of a column, as the lanes of a vector of sums are."""
        holders = self._holders.get(vector)
        if holders is None:
            return self._weight(self.base[3] + vector, dot, column)
        parts = [self._weights(block, dot, column, lane, GROUP) for block, lane in holders]
        return shuffled(parts, range(self._lanes * self.rows.depth))

    def _hold(self, vector: int) -> Iterator[Any]:
        """Binds which blocks and lanes hold the weights of a vector, part by part, where they are not its own.

        Each block of a group has some of another's, see `turned`.
        """
        if self._held is not None or not self.grouped:
            return
        block, found = self.base[3] + vector, []
        inside, first, within = block < self.grouped, tirx.floordiv(block, GROUP), tirx.floormod(block, GROUP)
        for part in range(GROUP):
            holder = bound("holder", tirx.Select(inside, first * GROUP + part, block))
            lane = bound("lane", tirx.Select(inside, within * GROUP, constant(part * GROUP, "int32")))
            yield from (holder, lane)
            found.append((holder.var, lane.var))
        self._holders[vector] = found

    def _factor_of(self, place: Place, dot: int, column: int) -> Expression:
        """The weights of a place for a dot of a column. Those of the line below may be shifted by some rows."""
        shifted = self.rows.dots() if place[0] and self.rows.before else 0
        return self._factor(place[2], shifted + dot, column)

    def _added(
        self, totals: dict[Place, list[Expression]], place: Place, factor: Expression, joined: Expression
    ) -> Any:
        """The statement that adds a dot to the sums of a place: the last one stores them. totals: all so far."""
        kind, name = f"int{LANE}x{self._lanes}", self._instruction.llvm
        buffer, at = self._memory(place, tirx.Ramp(constant(0, "int32"), 1, self._lanes))
        held = totals.setdefault(place, [tirx.BufferLoad(buffer, at)])
        if self._instruction.adds:
            added = llvm_call(kind, name, held[-1], joined, factor)
        else:
            added = held[-1] + llvm_call(kind, name, joined, factor)
        if len(held) == self.rows.dots() * self.lengths[6]:
            return tirx.BufferStore(buffer, added, at)
        made = bound("total", added)
        held.append(made.var)
        return made


def beginning(loops: Sequence[Any], realize: Any) -> list[Expression]:
    """The index of a block's axes where the loops around it begin."""
    return substitute(realize.iter_values, [loop.loop_var for loop in loops], [constant(0, "int32")] * len(loops))
