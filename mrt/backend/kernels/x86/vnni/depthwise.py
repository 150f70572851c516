"""Depthwise convolutions by dots of bytes: a dot takes up to four taps of a column of one channel.

Channels are in lanes. The bytes of a column, one below the other, are put next to each other in each lane; a column
so made serves every position of a row whose window it is in, one vpdpbusd each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from tvm import ir, te, tirx

from mrt.backend.kernels.dot_instructions import Dot, choose_dot
from mrt.backend.kernels.generic.accumulator_init import initialized_sums
from mrt.backend.kernels.generic.dot import DotForm
from mrt.backend.kernels.generic.lower_blocks import KernelPass, lower_blocks, statement_block, without_marks
from mrt.backend.kernels.generic.sum_block import SumBlock
from mrt.backend.kernels.x86.avx512.packed_store import stores_packed
from mrt.backend.kernels.x86.vnni.dots import PERMUTES, VPDPBUSD_256, VPDPBUSD_512
from mrt.backend.machine import Machine
from mrt.backend.memory.storage import Storage, View
from mrt.backend.schedule.loops import divisors, extent, parallelize
from mrt.backend.te.operands import Operand, Packed, Surroundings
from mrt.backend.te.stages import Hint, stage
from mrt.backend.tir.expressions import Expression, Tensor, constant, dtype_of, substitute
from mrt.backend.tir.statements import vectorized
from mrt.symbol import Array
from mrt.symbol.passes import Property
from mrt.symbol.types import type_of

DEPTH = 4
"""Taps in a dot."""
BITS = 8
"""Bits of a tap."""
LANES = 16
"""Channels of a vector of 512 bits."""
PLACES = tuple(row * LANES + lane for lane in range(LANES) for row in range(DEPTH))
"""Where in four rows of 16 channels, one after the other, the bytes are that are put next to each other."""
PERMUTE = "llvm.x86.avx512.permvar.qi.512"
"""Puts them there, by places that LLVM finds in memory only: of those that it knows it makes shuffles of two vectors,
which take three operations instead of one."""
STRIP = 14
"""Positions of a row whose sums are in registers."""


class ColumnForm(DotForm):
    """How a depthwise weight lies in memory."""


def column_dot(data: str, weight: Array, accumulator: str, machine: Machine) -> Dot | None:
    """The dot for a depthwise weight (channels, 1, rows, columns) and data of a dtype; None where there is none."""
    if weight.ndim != 4:
        return None
    dot = choose_dot(data, weight, accumulator, machine)
    return dot if dot.formed_by in (VPDPBUSD_512, VPDPBUSD_256) and dot.parts == 1 else None


def pack_columns(weight: Array, data: View, accumulator: str, surroundings: Surroundings) -> Packed | None:
    """The weight (channels, 1, rows, columns) as [block, rows / 4, column, lane, 4]; None if the data lies otherwise.

    Where bytes are permuted one block more begins with PLACES. Where memory holds more than the data's values, the
    second array takes it off again for each channel.
    """
    dot, storage = column_dot(data.dtype, weight, accumulator, surroundings.machine), data.storage
    if dot is None or storage is None or (storage.dtype, storage.offset) != (dot.data, dot.offset):
        return None
    if storage.depth != surroundings.walk.storage.length or storage.depth % dot.lanes:
        return None
    channels, _, rows, columns = weight.shape
    quads = -(-rows // DEPTH)
    laid = np.zeros((storage.depth, quads * DEPTH, columns), np.int8)
    laid[:channels, :rows] = weight[:, 0]
    packed = np.ascontiguousarray(laid.reshape(-1, dot.lanes, quads, DEPTH, columns).transpose(0, 2, 4, 1, 3))
    arrays = [_with_places(packed) if surroundings.machine.has(PERMUTES) else packed]
    if dot.offset:
        arrays.append(-dot.offset * packed.sum(axis=(1, 2, 4), dtype=np.int32))
    laid_as = tuple(Storage.plain(type_of(array)) for array in arrays)
    return Packed(ColumnForm(dot, flat=False, groups=1), tuple(arrays), laid_as)


def _with_places(packed: Array) -> Array:
    places = np.zeros((1, *packed.shape[1:]), packed.dtype)
    places.reshape(-1)[: len(PLACES)] = PLACES
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
        factor = packed(block, tirx.floordiv(row, DEPTH), column, lane, tirx.floormod(row, DEPTH))
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
    strip = max(n for n in divisors(extent(plan, row)) if n <= STRIP)
    blocks, lane = plan.split(channel, [None, lanes])
    lines, inner_lines = plan.split(line, [None, _lines(plan.get(sums), extent(plan, line))])
    strips, inner = plan.split(row, [None, strip])
    plan.reorder(*outer, lines, blocks, strips, inner_lines, inner, lane)
    plan.compute_at(sums, strips, preserve_unit_loops=True)
    parallelize(plan, [*outer, lines, blocks])
    if stores_packed(plan, lane):
        plan.annotate(inner_lines, Hint.PACKED_STORE, 0)
        return
    plan.vectorize(lane)
    plan.unroll(inner_lines)
    plan.unroll(inner)


def _lines(block: Any, count: int) -> int:
    """Of `count` lines of positions, how many are summed together: two, if a dot has room for the rows of both."""
    columns = SumBlock(block)  # Its axes are those of `_Strip`.
    stride, rest = divmod(columns.pitch(1), columns.pitch(5))
    return 2 if count % 2 == 0 and rest == 0 and columns.lengths[5] + stride <= DEPTH else 1


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


class _Strip(SumBlock):
    """Sums of some lines of some positions each; the block's axes are [n, y, x, block, lane, row, column].

    base: the index of these at which it begins. lengths: how far it reaches along each.
    """

    def __init__(self, block: Any, base: Sequence[Expression], lengths: Sequence[int]) -> None:
        super().__init__(block)
        self._base, self._start = base, block.init.value
        self._lines, self._positions, self._lanes, self._rows, self._columns = (lengths[i] for i in (1, 2, 4, 5, 6))
        self._stride = self.pitch(1) // self.pitch(5)
        self._instruction = str(block.annotations[Hint.COLUMNS])
        self._permutes = int(self.weights.source.shape[0]) > self.lengths[3]

    def statements(self) -> Iterator[Any]:
        """Column by column of the data; each goes to all sums that it is part of."""
        for y in range(self._lines):
            for x in range(self._positions):
                yield self._initialized(y, x)
        readers: dict[int, list[tuple[int, int]]] = {}
        position, tap = self.pitch(2), self.pitch(6)
        for x in range(self._positions):
            for column in range(self._columns):
                readers.setdefault(x * position + column * tap, []).append((x, column))
        for _, reading in sorted(readers.items()):
            for first in range(0, self._rows, DEPTH):
                made = self._joined(first, *reading[0])
                for x, column in reading:
                    for y in range(self._lines):
                        yield self._added(y, x, column, first, made)

    def _place(self, y: int, x: int, lane: Expression) -> list[Expression]:
        """The index of a position's sums."""
        return [self._base[0], self._base[1] + y, self._base[2] + x, self._base[3], lane]

    def _initialized(self, y: int, x: int) -> Any:
        """Initializes the sums of a position."""
        lane = tirx.Var("lane", "int32")
        place = self._place(y, x, lane)
        (start,) = substitute([self._start], self.variables, [*place, *self._base[5:]])
        return vectorized(lane, self._lanes, tirx.BufferStore(self.sums, start, place))

    def _joined(self, first: int, x: int, column: int) -> Expression:
        """Up to four bytes of a column in each lane, from row `first` on, as the factor of a dot."""
        reached = self._rows + (self._lines - 1) * self._stride
        rows = []
        for row in range(first, min(first + DEPTH, reached)):
            at = [*self._place(0, x, self._base[4]), constant(row, "int32"), constant(column, "int32")]
            *outer, channel = self.index(self.data, at)
            held = tirx.BufferLoad(self.data.source, [*outer, tirx.Ramp(channel, 1, self._lanes)])
            rows.append(tirx.reinterpret(f"int8x{self._lanes}", held))
        # Where there are no more rows the weights are 0.
        rows += rows[-1:] * (DEPTH - len(rows))
        if not self._permutes:
            places = [row * self._lanes + lane for lane in range(self._lanes) for row in range(DEPTH)]
            return tirx.Shuffle(rows, [constant(place, "int32") for place in places])
        kind, zero = f"int8x{DEPTH * self._lanes}", constant(0, "int32")
        following = tirx.Shuffle(rows, [constant(place, "int32") for place in range(DEPTH * self._lanes)])
        at = [constant(self.lengths[3], "int32"), zero, zero, zero, tirx.Ramp(zero, 1, DEPTH * self._lanes)]
        return tirx.call_llvm_pure_intrin(kind, PERMUTE, following, tirx.BufferLoad(self.weights.source, at))

    def _added(self, y: int, x: int, column: int, first: int, joined: Expression) -> Any:
        """Adds a dot to the sums of a position. Lines after the first one have their rows further down the column."""
        kind, zero = f"int32x{self._lanes}", constant(0, "int32")
        place = self._place(y, x, tirx.Ramp(zero, 1, self._lanes))
        at = [self._base[3], constant(first // DEPTH, "int32"), constant(column, "int32"), zero]
        factor = tirx.BufferLoad(self.weights.source, [*at, tirx.Ramp(zero, 1, self._lanes * DEPTH)])
        if y:
            bits = tirx.Broadcast(constant(BITS * y * self._stride, "int32"), self._lanes)
            factor = tirx.reinterpret(dtype_of(factor), tirx.reinterpret(kind, factor) << bits)
        held = tirx.BufferLoad(self.sums, place)
        added = tirx.call_llvm_pure_intrin(kind, self._instruction, held, joined, factor)
        return tirx.BufferStore(self.sums, added, place)
