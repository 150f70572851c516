"""Depthwise convolutions by dots: one takes up to four taps of bytes, or two of int16, of a column of one channel.

Channels are in lanes. The elements of a column, one below the other, are put next to each other in each lane; a column
so made serves every position of a row whose window it is in, and of the line below, one dot each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np
from tvm import ir, te, tirx

from mrt.backend.kernels.dot_instruction import DotInstruction
from mrt.backend.kernels.dot_instructions import Dot, choose_dot
from mrt.backend.kernels.generic.accumulator_init import initialized_sums
from mrt.backend.kernels.generic.dot import DotForm
from mrt.backend.kernels.generic.lower_blocks import KernelPass, lower_blocks, statement_block, without_marks
from mrt.backend.kernels.generic.sum_block import SumBlock
from mrt.backend.kernels.x86.avx2 import dots as avx2
from mrt.backend.kernels.x86.avx512 import dots as avx512
from mrt.backend.kernels.x86.avx512.packed_store import stores_packed
from mrt.backend.kernels.x86.vnni import dots as vnni
from mrt.backend.machine import Machine
from mrt.backend.memory.storage import Storage, View
from mrt.backend.schedule.loops import WORKING, divisors, extent, parallelize
from mrt.backend.te.operands import Operand, Packed, Surroundings
from mrt.backend.te.stages import Hint, stage
from mrt.backend.tir.expressions import Expression, Tensor, constant, llvm_call, substitute
from mrt.backend.tir.statements import bound, vectorized
from mrt.symbol import Array
from mrt.symbol.passes import Property
from mrt.symbol.types import type_of

LANE = 32
"""Bits of a lane, which the taps of a dot fill."""
PERMUTED = 64
"""Bytes of the vectors in which bytes are permuted."""
PERMUTE = "llvm.x86.avx512.permvar.qi.512"
"""Puts bytes next to each other, by places that LLVM finds in memory only: of those that it knows it makes shuffles of
two vectors, which take three operations instead of one."""
STRIP = 14
"""Positions of a row whose sums are in registers at most."""
FEW_REGISTERS = 16
"""With no more of them weights are loaded again for each strip anyway, so that all channels of a strip follow each
other: a row of many channels would leave the first cache before the next few of them are read."""
COLUMN_DOTS: tuple[DotInstruction, ...] = (*vnni.DOTS, *avx512.DOTS, *avx2.DOTS)


class ColumnForm(DotForm):
    """How a depthwise weight lies in memory."""


def column_dot(data: str, weight: Array, accumulator: str, machine: Machine) -> Dot | None:
    """The dot for a depthwise weight (channels, 1, rows, columns) and data of a dtype; None where there is none."""
    if weight.ndim != 4:
        return None
    dot = choose_dot(data, weight, accumulator, machine)
    return dot if dot.formed_by in COLUMN_DOTS and dot.parts == 1 else None


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


def pack_columns(
    weight: Array, data: View, accumulator: str, surroundings: Surroundings, stride: int, dilation: int
) -> Packed | None:
    """The weight (channels, 1, rows, columns) as [block, rows / depth, column, lane, depth].

    None if the data lies otherwise. Where two lines are summed together that begin at different rows of a dot, the
    same follows as the lower one reads it. Where bytes are permuted one block more begins with their places. Where
    memory holds more than the data's values, the second array takes it off again for each channel.
    stride, dilation: along rows.
    """
    dot, storage = column_dot(data.dtype, weight, accumulator, surroundings.machine), data.storage
    if dot is None or storage is None or (storage.dtype, storage.offset) != (dot.data, dot.offset):
        return None
    if storage.depth != surroundings.walk.storage.length or storage.depth % dot.lanes:
        return None
    rows = Rows.of(weight.shape[2], stride, dilation, dot.depth)
    packed = _in_lanes(weight, storage.depth, dot, rows)
    laid = [packed]
    if rows.may_pair and rows.before:
        lower = np.pad(weight, [(0, 0), (0, 0), (rows.before, 0), (0, 0)])
        laid.append(_in_lanes(lower, storage.depth, dot, rows))
    both = np.concatenate(laid, axis=1)
    arrays = [_with_places(both) if surroundings.machine.has(vnni.PERMUTES) else both]
    if dot.offset:
        arrays.append(-dot.offset * packed.sum(axis=(1, 2, 4), dtype=np.int32))
    laid_as = tuple(Storage.plain(type_of(array)) for array in arrays)
    return Packed(ColumnForm(dot, flat=False, groups=1), tuple(arrays), laid_as)


def _in_lanes(weight: Array, length: int, dot: Dot, rows: Rows) -> Array:
    """The weight as [block, dots of `rows`, column, lane, depth], of so many channels."""
    channels, _, count, columns = weight.shape
    laid = np.zeros((length, rows.dots() * dot.depth, columns), dot.weight)
    laid[:channels, :count] = weight[:, 0]
    return np.ascontiguousarray(laid.reshape(-1, dot.lanes, rows.dots(), dot.depth, columns).transpose(0, 2, 4, 1, 3))


def _with_places(packed: Array) -> Array:
    """One block more, which begins with where in rows that follow each other the bytes of each lane are."""
    *_, lanes, depth = packed.shape
    size = packed.dtype.itemsize
    lane, row, byte = np.indices((lanes, depth, size))
    held = ((row * lanes + lane) * size + byte).astype(np.int8).ravel()
    places = np.zeros((1, *packed.shape[1:]), packed.dtype)
    places.view(np.int8).reshape(-1)[: held.size] = held
    return np.concatenate([packed, places])


def column_sums(
    data: View,
    weight: Operand,
    positions: Sequence[int],
    kernel: Sequence[int],
    window: Callable[[Sequence[Expression], Sequence[Expression]], list[Expression]],
    bias: Tensor | None,
) -> Callable[..., Expression]:
    """A function of (channel, n, y, x) that gives the sum over the taps, plus a bias if there is one.

    window: of a position (y, x) and a tap, where in the data it is.
    """
    form: ColumnForm = weight.form
    dot, packed, storage = form.dot, weight.views[0], data.storage
    if storage is None:
        raise ValueError("columns are read from memory")
    taps = [te.reduce_axis((0, n), f"tap{i}") for i, n in enumerate(kernel)]

    def total(*at: Expression) -> Expression:
        n, *position, block, lane = at
        held = data.tensor(*storage.places([n, block * dot.lanes + lane, *window(position, taps)]))
        row, column = taps
        factor = packed(block, tirx.floordiv(row, dot.depth), column, lane, tirx.floormod(row, dot.depth))
        return te.sum(held.astype(dot.accumulator) * factor.astype(dot.accumulator), axis=taps)

    sums = stage((*positions, storage.depth // dot.lanes, dot.lanes), total, "columns", columns=dot.instruction)
    initialized = initialized_sums(sums, dot, weight, bias)

    def element(channel: Expression, *position: Expression) -> Expression:
        block, lane = tirx.floordiv(channel, dot.lanes), tirx.floormod(channel, dot.lanes)
        if initialized is not None:
            return initialized(*position, block, lane)
        value = sums(*position, block, lane)
        return value if bias is None else value + bias(channel).astype(dot.accumulator)

    return element


def schedule_columns(plan: Any, sums: Any, output: Any, machine: Machine) -> None:
    """A strip of one or two lines of positions at a time of one vector of channels; `DepthwiseDots` writes its sums."""
    *outer, line, row, channel = plan.get_loops(output)
    lanes = extent(plan, plan.get_loops(sums)[len(outer) + 3])
    together, strip = _strip_of(plan.get(sums), extent(plan, line), extent(plan, row), machine)
    blocks, lane = plan.split(channel, [None, lanes])
    lines, inner_lines = plan.split(line, [None, together])
    strips, inner = plan.split(row, [None, strip])
    around = [lines, strips, blocks] if machine.registers <= FEW_REGISTERS else [lines, blocks, strips]
    plan.reorder(*outer, *around, inner_lines, inner, lane)
    plan.compute_at(sums, around[-1], preserve_unit_loops=True)
    parallelize(plan, [*outer, *around[:-1]])
    if stores_packed(plan, lane):
        plan.annotate(inner_lines, Hint.PACKED_STORE, 0)
        return
    plan.vectorize(lane)
    plan.unroll(inner_lines)
    plan.unroll(inner)


def _strip_of(block: Any, lines: int, positions: int, machine: Machine) -> tuple[int, int]:
    """The lines and the positions of each that are summed together: those for which fewest columns are made."""
    columns = _Columns(block)
    rows, found = columns.rows, []
    for together in (2, 1) if lines % 2 == 0 and rows.may_pair else (1,):
        most = min(STRIP, (machine.registers - WORKING) // together)
        strip = max(n for n in divisors(positions) if n <= most)
        made = len(columns.readers(strip)) * rows.dots(rows.step * (together - 1))
        found.append((made / (together * strip), together, strip))
    return min(found)[1:]


@dataclass(frozen=True)
class DepthwiseDots(KernelPass):
    """The sums over columns by dots."""

    marks: ClassVar[tuple[str, ...]] = (Hint.COLUMNS,)
    ensures: ClassVar[tuple[Property, ...]] = (without_marks(Hint.COLUMNS),)

    def lower(self, function: Any) -> Any:
        return lower_blocks(function, Hint.COLUMNS, _strip)


def _strip(loops: Sequence[Any], realize: Any) -> Any:
    """The sums of a strip of positions; ValueError if the loops are not those of one."""
    block, lengths = realize.block, [int(loop.extent) for loop in loops]
    if len(lengths) != 7 or lengths[0] != 1 or lengths[3] != 1:
        raise ValueError("columns are not read strip by strip")
    zeros = [constant(0, "int32")] * len(loops)
    base = substitute(realize.iter_values, [loop.loop_var for loop in loops], zeros)
    strip = _Strip(block, base, lengths)
    written = [ir.Range.from_min_extent(*pair) for pair in zip(base[:5], lengths[:5], strict=True)]
    region = tirx.BufferRegion(strip.sums, written)
    return statement_block("columns", [strip.data.source, strip.weights.source], region, strip.statements())


class _Columns(SumBlock):
    """Sums over the columns of windows; the block's axes are [n, y, x, block, lane, row, column]."""

    @cached_property
    def rows(self) -> Rows:
        return Rows.of(self.lengths[5], self.pitch(1), self.pitch(5), int(self.weights.source.shape[-1]))

    def readers(self, positions: int) -> dict[int, list[tuple[int, int]]]:
        """By the column of the data, all (position of a strip, column of its window) that read it."""
        found: dict[int, list[tuple[int, int]]] = {}
        position, tap = self.pitch(2), self.pitch(6)
        for x in range(positions):
            for column in range(self.lengths[6]):
                found.setdefault(x * position + column * tap, []).append((x, column))
        return dict(sorted(found.items()))


class _Strip(_Columns):
    """Sums of some lines of some positions each.

    base: the index of the block's axes at which it begins. lengths: how far it reaches along each.
    """

    def __init__(self, block: Any, base: Sequence[Expression], lengths: Sequence[int]) -> None:
        super().__init__(block)
        self._base, self._start = base, block.init.value
        self._lines, self._positions, self._lanes = (lengths[i] for i in (1, 2, 4))
        name = str(block.annotations[Hint.COLUMNS])
        (self._instruction,) = {each for each in COLUMN_DOTS if each.llvm == name}
        self._permutes = int(self.weights.source.shape[0]) > self.lengths[3]

    def statements(self) -> Iterator[Any]:
        """Column by column of the data; each goes to all sums that it is part of.

        Columns and sums are variables, and a sum is stored with its last dot: all that accesses memory goes through all
        of TVM's passes, which took longer for sums stored with every dot than for all else.
        """
        rows, places = self.rows, list(product(range(self._lines), range(self._positions)))
        for place in places:
            yield self._initialized(*place)
        sums = {place: tirx.BufferLoad(self.sums, self._in_vector(*place)) for place in places}
        left = dict.fromkeys(places, rows.dots() * self.lengths[6])
        for reading in self.readers(self._positions).values():
            for number in range(rows.dots(rows.step * (self._lines - 1))):
                joined = self._joined(number * rows.depth, *reading[0])
                yield (made := bound("column", joined))
                for (x, column), y in product(reading, range(self._lines)):
                    dot = number - y * (rows.step // rows.depth)
                    if not 0 <= dot < rows.dots():
                        continue
                    added = self._added(sums[y, x], made.var, self._weight_of(y, dot, column))
                    left[y, x] -= 1
                    if left[y, x]:
                        yield (total := bound("total", added))
                        sums[y, x] = total.var
                    else:
                        yield tirx.BufferStore(self.sums, added, self._in_vector(y, x))

    def _place(self, y: int, x: int, lane: Expression) -> list[Expression]:
        """The index of a position's sums."""
        return [self._base[0], self._base[1] + y, self._base[2] + x, self._base[3], lane]

    def _initialized(self, y: int, x: int) -> Any:
        """Initializes the sums of a position."""
        lane = tirx.Var("lane", "int32")
        place = self._place(y, x, lane)
        (start,) = substitute([self._start], self.variables, [*place, *self._base[5:]])
        return vectorized(lane, self._lanes, tirx.BufferStore(self.sums, start, place))

    def _in_vector(self, y: int, x: int) -> list[Expression]:
        """The index of all lanes of a position's sums."""
        return self._place(y, x, tirx.Ramp(constant(0, "int32"), 1, self._lanes))

    def _joined(self, first: int, x: int, column: int) -> Expression:
        """The elements of a column in each lane, from row `first` on, as the factor of a dot."""
        rows = self.rows
        held = []
        for row in range(first, min(first + rows.depth, rows.count + (self._lines - 1) * rows.step)):
            at = [*self._place(0, x, self._base[4]), constant(row, "int32"), constant(column, "int32")]
            *outer, channel = self.index(self.data, at)
            held.append(tirx.BufferLoad(self.data.source, [*outer, tirx.Ramp(channel, 1, self._lanes)]))
        # Where there are no more rows the weights are 0.
        if len(held) == 1 or (rows.depth == 2 and not self._permutes):
            return self._widened(held)
        return self._interleaved([*held, *held[-1:] * (rows.depth - len(held))])

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
            places = [row * self._lanes + lane for lane in range(self._lanes) for row in range(depth)]
            return tirx.Shuffle(vectors, [constant(place, "int32") for place in places])
        following = tirx.Shuffle(vectors, [constant(place, "int32") for place in range(count)])
        kind = f"int8x{PERMUTED}"
        places_of = tirx.reinterpret(kind, self._weight(constant(self.lengths[3], "int32"), 0, 0))
        permuted = llvm_call(kind, PERMUTE, tirx.reinterpret(kind, following), places_of)
        return tirx.reinterpret(f"int{self._bits}x{count}", permuted)

    def _weight(self, block: Expression, dot: int, column: int) -> Expression:
        """A vector of weights for a dot of a column."""
        zero = constant(0, "int32")
        at = [block, constant(dot, "int32"), constant(column, "int32"), zero]
        return tirx.BufferLoad(self.weights.source, [*at, tirx.Ramp(zero, 1, self._lanes * self.rows.depth)])

    def _weight_of(self, y: int, dot: int, column: int) -> Expression:
        """The weights of a line for a dot of a column. Those of the line below may be shifted by some rows."""
        shifted = self.rows.dots() if y and self.rows.before else 0
        return self._weight(self._base[3], shifted + dot, column)

    def _added(self, total: Expression, joined: Expression, factor: Expression) -> Expression:
        """Sums with a dot added."""
        kind, name = f"int{LANE}x{self._lanes}", self._instruction.llvm
        if not self._instruction.adds:
            return total + llvm_call(kind, name, joined, factor)
        return llvm_call(kind, name, total, joined, factor)
